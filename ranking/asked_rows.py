"""Files of (entity_type, entity_id, ts) rows, read in pieces: whose tokens somebody wants, as of when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from data.errors import BadDataError, UsageError, nearest
from data.schema import ENTITY_TYPES
from ranking.token_table import ASKED

PIECE_ROWS = 65_536
"""Rows of a piece of a Parquet file; pieces of a CSV file are of about a megabyte."""

_ZONE = r"(Z|[+-]\d\d:?\d\d)$"
_TIME = "a date such as 2017-10-01, a time such as 2017-10-01T12:00:00Z, or whole microseconds since 1970 (UTC)"


class Place(NamedTuple):
    """The file and the row of it at which a piece begins, from 1."""

    path: Path
    first: int

    def __str__(self) -> str:
        return f"{self.path}, rows from {self.first:,}"


def read_asked(path: Path, ts: int | None = None) -> Iterator[pa.Table]:
    """Pieces of schema ASKED of a .csv or .parquet file, in its order; `ts` [us] stands in for a file without times.

    Times: dates (their first moment, UTC), ISO times (UTC without a zone), timestamps, or whole microseconds. Raises
    UsageError for another kind of file, unknown columns, or times given twice; BadDataError for an unreadable file, a
    missing column, an unknown type, an empty id or a time that is none, with the row.
    """
    names, pieces = _open(path)
    _check_columns(path, names, ts)
    done = 0
    try:
        for piece in pieces:
            yield _asked(piece, Place(path, done + 1), ts)
            done += len(piece)
    except (pa.ArrowInvalid, OSError) as error:
        raise _unreadable(path, error) from error


def _open(path: Path) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    readers = {".csv": _open_csv, ".parquet": _open_parquet}
    if path.suffix not in readers:
        raise UsageError(f"--rows: expected a .csv or .parquet file, got {path}")
    if not path.exists():
        raise BadDataError(f"--rows: expected a file at {path}, found none")
    try:
        return readers[path.suffix](path)
    except (pa.ArrowInvalid, OSError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> BadDataError:
    return BadDataError(f"{path} is not readable as {path.suffix[1:]}: {str(error).splitlines()[0]}")


def _open_csv(path: Path) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """All columns as text, so that an id of digits stays what it is."""
    with pyarrow.csv.open_csv(path) as head:
        names = list(head.schema.names)
    kinds = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    return names, iter(pyarrow.csv.open_csv(path, convert_options=kinds))


def _open_parquet(path: Path) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    file = pq.ParquetFile(path)
    return list(file.schema_arrow.names), file.iter_batches(batch_size=PIECE_ROWS)


def _check_columns(path: Path, names: list[str], ts: int | None) -> None:
    for name in names:
        if name not in ASKED.names:
            raise UsageError(
                f"{path}: unknown column {name!r}: {nearest(name, ASKED.names)}. Leave others out: the order stays"
            )
    if ts is not None and "ts" in names:
        raise UsageError(f"{path} has a column ts, and --as-of gives another time: expected one of the two")
    for name in ASKED.names:
        if name not in names and (name != "ts" or ts is None):
            hint = ", or one time for all rows with --as-of" if name == "ts" else ""
            raise BadDataError(f"{path}: expected a column {name}{hint}, got {names}")


def _asked(piece: pa.RecordBatch, where: Place, ts: int | None) -> pa.Table:
    columns = {name: piece.column(name) for name in piece.schema.names}
    for name in ("entity_type", "entity_id"):
        columns[name] = columns[name].cast(pa.string())
        _check(pc.not_equal(pc.fill_null(columns[name], ""), ""), columns[name], f"an {name}", where)
    known = pc.is_in(columns["entity_type"], value_set=pa.array(ENTITY_TYPES))
    _check(known, columns["entity_type"], f"a type among {', '.join(ENTITY_TYPES)}", where)
    if ts is None:
        columns["ts"] = _times(columns["ts"], where)
    else:
        columns["ts"] = pa.array(np.full(len(piece), ts, np.int64))
    return pa.Table.from_arrays([columns[name] for name in ASKED.names], schema=ASKED)


def _times(given: pa.Array, where: Place) -> pa.Array:
    _check(pc.is_valid(given), given, "a time in ts", where)
    if pa.types.is_timestamp(given.type):
        return given.cast(pa.timestamp("us", given.type.tz), safe=False).cast(pa.int64())
    if pa.types.is_date(given.type):
        return given.cast(pa.timestamp("us")).cast(pa.int64())
    if pa.types.is_integer(given.type):
        return given.cast(pa.int64())
    if not (pa.types.is_string(given.type) or pa.types.is_large_string(given.type)):
        raise BadDataError(f"{where}: expected {_TIME} in ts, got a column of {given.type}")
    return _parsed(given.cast(pa.string()), where)


def _parsed(text: pa.Array, where: Place) -> pa.Array:
    """Text, each in a form of its own. A cast stops at the first that is no time, so forms are told apart before."""
    whole = pc.match_substring_regex(text, r"^-?\d{9,18}$")
    zoned = pc.match_substring_regex(text, r"^\d{4}-\d\d-\d\d[T ].*" + _ZONE)
    plain = pc.match_substring_regex(text, r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?$")
    _check(pc.or_(whole, pc.or_(zoned, plain)), text, _TIME, where)
    found = np.empty(len(text), np.int64)
    for mine, kind in ((whole, pa.int64()), (zoned, pa.timestamp("us", "UTC")), (plain, pa.timestamp("us"))):
        chosen = text.filter(mine)
        try:
            found[mine.to_numpy(zero_copy_only=False)] = chosen.cast(kind).cast(pa.int64()).to_numpy()
        except pa.ArrowInvalid as error:
            raise BadDataError(f"{where}: expected {_TIME} in ts, got {str(error).splitlines()[0]}") from error
    return pa.array(found)


def _check(good: pa.Array, given: pa.Array, expected: str, where: Place) -> None:
    """Raise BadDataError for the first row that is not good."""
    bad = np.flatnonzero(~good.to_numpy(zero_copy_only=False).astype(bool))
    if len(bad):
        came = given[int(bad[0])].as_py()
        raise BadDataError(f"{where.path}, row {where.first + int(bad[0]):,}: expected {expected}, got {came!r}")
