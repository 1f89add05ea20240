"""Raw cells: one file of any format as our columns of text, beside the file's name and the row's number.

Columns are named through expressions, never by writing their names into SQL, so any name is safe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from duckdb import CoalesceOperator, ColumnExpression, ConstantExpression, Expression, FunctionExpression, SQLExpression
from pyarrow import csv

from data import quality
from data.errors import BadDataError
from data.sources import limits

_BLOCK = limits.LINE_BYTES
"""Bytes read at once: no single row of text may be longer."""

Source = str | tuple[str, ...]
"""Their column, or several of theirs that form a list."""

LISTS = ("category", "image")
"""Columns of ours that a list may fill."""

_NESTED = ("STRUCT", "MAP", "UNION")

LIST_MARK = "\x1f"
"""Stands before each element of a list cell, so that elements may hold any separator (the unit separator, ASCII 31)."""


def open_file(
    connection: duckdb.DuckDBPyConnection, path: Path, delimiter: str | None, wanted: Sequence[str]
) -> duckdb.DuckDBPyRelation:
    """The rows of `path` with its own columns, at least the `wanted` ones.

    Raises BadDataError when it is not what its suffix says, or has no such column or several of one name.
    """
    kind = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    with quality.readable(path):
        if kind == ".parquet":
            return connection.from_arrow(_parquet_reader(path, wanted))
        if kind in (".csv", ".tsv"):
            return connection.from_arrow(_csv_reader(path, delimiter or ("," if kind == ".csv" else "\t"), wanted))
        if kind in (".jsonl", ".ndjson"):
            # Depth 1 keeps every value as JSON, so that no value's type depends on the other rows.
            return connection.read_json(str(path), format="newline_delimited", maximum_depth=1, sample_size=-1)
    raise BadDataError(f"{path}: expected .parquet, .csv, .tsv or .jsonl (text also .gz), got suffix {path.suffix!r}")


def _parquet_reader(path: Path, wanted: Sequence[str]) -> pa.RecordBatchReader:
    """The wanted columns of a Parquet file, read by Arrow because it verifies checksums and lets us count."""
    with pq.ParquetFile(path) as file:
        quality.check_columns(path, file.schema_arrow.names, wanted)
    return pa.RecordBatchReader.from_batches(*limits.parquet_batches(path, list(dict.fromkeys(wanted))))


def _csv_reader(path: Path, delimiter: str, wanted: Sequence[str]) -> pa.RecordBatchReader:
    """A CSV file as batches of text, read by Arrow because it guesses no dialect, no types and no lines to skip."""
    reading = csv.ReadOptions(use_threads=False, block_size=_BLOCK)
    parsing = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    with csv.open_csv(path, reading, parsing) as probe:
        names = probe.schema.names
    quality.check_columns(path, names, wanted)
    converting = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True
    )
    return csv.open_csv(path, reading, parsing, converting)


def as_text(
    rows: duckdb.DuckDBPyRelation,
    label: str,
    wanted: Sequence[str],
    columns: Mapping[str, Source],
    defaults: Mapping[str, str | int | float],
    attributes: Sequence[str],
    consumed: bool = False,
) -> duckdb.DuckDBPyRelation:
    """Columns `file` (= `label`), `row` (from 1), `consumed` and each of `wanted` as text, NULL where nothing is given.

    `attributes` are their columns gathered in a map under that name.
    """
    types = dict(zip(rows.columns, map(str, rows.types), strict=True))
    projected = [ConstantExpression(label).alias("file"), SQLExpression("row_number() OVER ()").alias("row")]
    projected.append(ConstantExpression(consumed).alias("consumed"))
    for name in wanted:
        if name == "attributes":
            projected.append(_gathered(sorted(attributes), types).alias(name))
        else:
            _check_type(label, name, columns.get(name), types)
            projected.append(_cell(columns.get(name), defaults.get(name), types).alias(name))
    return rows.project(*projected)


def _check_type(label: str, name: str, source: Source | None, types: Mapping[str, str]) -> None:
    for column in [source] if isinstance(source, str) else source or ():
        kind = types[column]
        is_list = kind.endswith("[]") and kind.count("[") == 1 and not kind.startswith(_NESTED)
        if kind.startswith(_NESTED) or (kind.endswith("]") and not (is_list and name in LISTS)):
            wanted = "a single value or a list of them" if name in LISTS else "a single value"
            raise BadDataError(
                f"{label}: expected {wanted} in each cell of {column!r} (mapped to {name!r}), got {kind[:80]}. "
                "Choose another column, or unpack this one."
            )


def _cell(source: Source | None, default: str | int | float | None, types: Mapping[str, str]) -> Expression:
    value: Expression = ConstantExpression(None).cast("VARCHAR")
    if isinstance(source, str):
        value = _text(source, types[source])
    elif source:
        mark = ConstantExpression(LIST_MARK)
        joined = FunctionExpression("concat_ws", mark, *[_text(column, types[column]) for column in source])
        value = FunctionExpression("concat", mark, joined)
    return value if default is None else CoalesceOperator(value, ConstantExpression(str(default)))


def _text(column: str, kind: str) -> Expression:
    """A cell of DuckDB type `kind` as text, NULL when empty."""
    cell: Expression = ColumnExpression(column)
    if kind == "JSON":
        cell = FunctionExpression("json_extract_string", cell, ConstantExpression("$"))
    elif kind.endswith("[]"):
        mark = ConstantExpression(LIST_MARK)
        joined = FunctionExpression("array_to_string", cell.cast("VARCHAR[]"), mark)
        cell = FunctionExpression("concat", mark, joined)
    return FunctionExpression("nullif", cell.cast("VARCHAR"), ConstantExpression(""))


def _gathered(names: Sequence[str], types: Mapping[str, str]) -> Expression:
    if not names:
        return ConstantExpression(None).cast("MAP(VARCHAR, VARCHAR)")
    keys = FunctionExpression("list_value", *[ConstantExpression(name) for name in names])
    values = FunctionExpression("list_value", *[_text(name, types[name]) for name in names])
    return FunctionExpression("map", keys, values)
