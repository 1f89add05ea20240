"""Files of one's own: Parquet, CSV or JSON lines, whatever their columns are called, through a mapping.

Each table lists its files and which of their columns holds what; cells are read as text first, so that every cell
that does not fit can be named by file, row and column.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

import duckdb
import pyarrow as pa
from duckdb import CoalesceOperator, ColumnExpression, ConstantExpression, Expression, FunctionExpression, SQLExpression
from pydantic import Field, ValidationInfo, model_validator

from data import quality, schema
from data.artifacts import sha256_file
from data.context import RunContext, StageConfig, execution
from data.engine import Engine
from data.errors import BadDataError, nearest

_SCHEMAS = {
    "products": schema.PRODUCTS,
    "campaigns": schema.CAMPAIGNS,
    "advertisers": schema.ADVERTISERS,
    "users": schema.USERS,
    "events": schema.EVENTS,
}
"""Tables in reading order: products come before the events that are checked against them."""

REQUIRED = {
    "events": ("user_id", "event_type", "ts"),
    "products": ("product_id",),
    "advertisers": ("advertiser_id",),
    "campaigns": ("campaign_id",),
    "users": ("user_id",),
}
_LIST_MARK = "\x1f"
TimeUnit = Literal["iso", "s", "ms", "us", "order"]


class TableFiles(StageConfig):
    """Files of one table and what their columns hold."""

    paths: tuple[str, ...] = execution(
        ..., "files or glob patterns (.parquet .csv .tsv .jsonl, text also .gz)", min_length=1
    )
    columns: dict[str, str | tuple[str, ...]] = Field(
        description="our column -> theirs; several of theirs form a list (category levels, coarse to fine)"
    )
    defaults: dict[str, str | int | float] = Field(
        default={}, description="our column -> value where theirs is empty or none is mapped"
    )
    attributes: tuple[str, ...] = Field(
        default=(), description="their columns kept as named attributes; no effect but for products and users"
    )
    time_unit: TimeUnit = Field(
        default="iso",
        description="unit of time columns: ISO 8601 text, s, ms or us since 1970 UTC, or the event's order",
    )
    event_types: dict[str, str] = Field(
        default={}, description="their event type -> ours (events only); a type of ours need not be listed"
    )
    category_separator: str = Field(
        default=" > ", min_length=1, description="what separates levels of a category in one text (products only)"
    )
    delimiter: str | None = Field(default=None, description="CSV delimiter; found by itself if unset")

    @model_validator(mode="after")
    def _known_event_types(self) -> Self:
        for theirs, ours in self.event_types.items():
            if ours not in schema.EVENT_TYPES:
                raise ValueError(f"event type {theirs!r} = {ours!r}: {nearest(ours, schema.EVENT_TYPES)}")
        return self


class Settings(StageConfig):
    """The tables to read. Advertisers, users and campaigns that no file lists are derived from the other tables."""

    name: str = Field(default="files", description="name of the data set, kept in every event's `source`")
    root: Path = execution(Path(), "folder that relative paths start from; a configuration file's own folder if unset")
    events: TableFiles = Field(description="engagement log")
    products: TableFiles = Field(description="catalogue; without dates it counts as known from the start of the log")
    advertisers: TableFiles | None = Field(default=None, description="advertisers, if listed")
    users: TableFiles | None = Field(default=None, description="users, if listed")
    campaigns: TableFiles | None = Field(default=None, description="campaigns, if any")

    @model_validator(mode="before")
    @classmethod
    def _root_of_file(cls, values: Any, info: ValidationInfo) -> Any:
        if isinstance(values, dict) and info.context and "root" in info.context:
            return {"root": info.context["root"], **values}
        return values

    @model_validator(mode="after")
    def _known_columns(self) -> Self:
        for name, table in self.tables().items():
            known = set(_SCHEMAS[name].names) - {"attributes"}
            given = [*table.columns, *table.defaults]
            for column in given:
                if column not in known:
                    raise ValueError(f"{name} has no column {column!r}: {nearest(column, known)}")
            for column in REQUIRED[name]:
                if column not in given:
                    raise ValueError(f"{name}.columns: expected an entry for {column!r}, got {sorted(given)}")
        return self

    @property
    def time_kind(self) -> str:
        """'order' when events are only numbered, else 'clock'."""
        return "order" if self.events.time_unit == "order" else "clock"

    def tables(self) -> dict[str, TableFiles]:
        """The tables that are given, in reading order."""
        given = {name: getattr(self, name) for name in _SCHEMAS}
        return {name: table for name, table in given.items() if table is not None}


def paths_of(settings: Settings, table: TableFiles) -> list[Path]:
    """The files of `table`, patterns expanded, in name order; raises BadDataError when one is not there."""
    found: list[Path] = []
    for pattern in table.paths:
        here = [Path(p) for p in sorted(settings.root.glob(pattern))] if not Path(pattern).is_absolute() else (
            sorted(Path(pattern).parent.glob(Path(pattern).name)))  # fmt: skip
        if not here:
            siblings = [p.name for p in (settings.root / pattern).parent.glob("*") if p.is_file()]
            hint = nearest(Path(pattern).name, siblings) if siblings else "that folder has no files"
            raise BadDataError(f"expected a file {settings.root / pattern}, found none: {hint}")
        found += here
    return found


def identity(settings: Settings) -> list[str]:
    """Table and sha256 of each file, free of file names, for the artifact key."""
    hashes = [(name, sha256_file(p)) for name, table in settings.tables().items() for p in paths_of(settings, table)]
    return sorted(f"{name}:{digest}" for name, digest in hashes)


def load(engine: Engine, settings: Settings, max_bad: float, ctx: RunContext) -> dict[str, Any]:
    """Fill the contract tables of `engine`; returns rows read and duplicates dropped by table.

    Raises BadDataError for files that cannot be read as the table they should be, before any row is processed,
    or when more than `max_bad` of a table's rows are broken. Raw text spills to disk above the memory limit.
    """
    files = {name: paths_of(settings, table) for name, table in settings.tables().items()}
    engine.run("cells")
    for path in [path for paths in files.values() for path in paths]:
        quality.check_text(path)
    for name, paths in files.items():
        for path in paths:
            _cells(engine, name, settings, path)
    read, repeated = {}, {}
    with ctx.progress.step("read files", sum(map(len, files.values())), "files") as step:
        for name, paths in files.items():
            table = settings.tables()[name]
            _load_raw(engine, name, settings, paths)
            quality.check_cells(engine, name, table.time_unit)
            engine.run(f"typed_{name}", **_parameters(settings, table))
            engine.run("distinct", table=name, identity=REQUIRED[name][0] if name != "events" else "event_id")
            read[name], repeated[name] = quality.judge(engine, name, max_bad)
            engine.insert("kept", name)
            step.advance(len(paths))
    engine.run("complete")
    return {"read": read, "equal_duplicates": repeated}


def _parameters(settings: Settings, table: TableFiles) -> dict[str, Any]:
    return {
        "unit": table.time_unit,
        "words": list(table.event_types),
        "types": list(table.event_types.values()),
        "known": list(schema.EVENT_TYPES),
        "separator": table.category_separator,
        "name": settings.name,
    }


def _load_raw(engine: Engine, name: str, settings: Settings, paths: list[Path]) -> None:
    """Make table `raw`: file, row (from 1) and each column of the contract as text, NULL where nothing is given."""
    engine.run("drop_raw")
    for index, path in enumerate(paths):
        cells = _cells(engine, name, settings, path)
        with quality.readable(path):
            cells.insert_into("raw") if index else cells.create("raw")


def _cells(engine: Engine, name: str, settings: Settings, path: Path) -> duckdb.DuckDBPyRelation:
    table = settings.tables()[name]
    relation = _open(engine, path, table.delimiter)
    wanted = [column for value in table.columns.values() for column in ([value] if isinstance(value, str) else value)]
    quality.check_columns(path, relation.columns, [*wanted, *table.attributes])
    types = dict(zip(relation.columns, map(str, relation.types), strict=True))
    columns = [
        ConstantExpression(_label(settings, path)).alias("file"),
        SQLExpression("row_number() OVER ()").alias("row"),
    ]
    for field in _SCHEMAS[name]:
        if field.name == "attributes":
            columns.append(_attributes(table.attributes, types))
        else:
            columns.append(_cell(field, table, types))
    return relation.project(*columns)


def _label(settings: Settings, path: Path) -> str:
    return path.relative_to(settings.root).as_posix() if path.is_relative_to(settings.root) else path.name


def _open(engine: Engine, path: Path, delimiter: str | None) -> duckdb.DuckDBPyRelation:
    kind = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    with quality.readable(path):
        if kind == ".parquet":
            return engine.connection.read_parquet(str(path))
        if kind in (".csv", ".tsv"):
            return engine.connection.read_csv(str(path), header=True, all_varchar=True, quotechar='"', sep=delimiter)
        if kind in (".jsonl", ".ndjson"):
            return engine.connection.read_json(str(path), format="newline_delimited", maximum_depth=1, sample_size=-1)
    raise BadDataError(
        f"{path}: expected .parquet, .csv, .tsv or .jsonl (text also .gz), got {path.suffix or 'no suffix'!r}"
    )


def _cell(field: pa.Field, table: TableFiles, types: dict[str, str]) -> Expression:
    """One of our columns as text: theirs, several of theirs as a list, or the default."""
    source = table.columns.get(field.name)
    value: Expression = ConstantExpression(None).cast("VARCHAR")
    if isinstance(source, str):
        value = _text(source, types[source])
    elif source:
        value = _listed([_text(column, types[column]) for column in source])
    if field.name in table.defaults:
        value = CoalesceOperator(value, ConstantExpression(str(table.defaults[field.name])))
    return value.alias(field.name)


def _text(column: str, kind: str) -> Expression:
    cell: Expression = ColumnExpression(column)
    if kind == "JSON":
        cell = FunctionExpression("json_extract_string", cell, ConstantExpression("$"))
    elif kind.endswith("[]"):
        joined = FunctionExpression("array_to_string", cell.cast("VARCHAR[]"), ConstantExpression(_LIST_MARK))
        cell = FunctionExpression("concat", ConstantExpression(_LIST_MARK), joined)
    return FunctionExpression("nullif", cell.cast("VARCHAR"), ConstantExpression(""))


def _listed(cells: list[Expression]) -> Expression:
    mark = ConstantExpression(_LIST_MARK)
    return FunctionExpression("concat", mark, FunctionExpression("concat_ws", mark, *cells))


def _attributes(names: tuple[str, ...], types: dict[str, str]) -> Expression:
    if not names:
        return ConstantExpression(None).cast("MAP(VARCHAR, VARCHAR)").alias("attributes")
    keys = FunctionExpression("list_value", *[ConstantExpression(name) for name in sorted(names)])
    values = FunctionExpression("list_value", *[_text(name, types[name]) for name in sorted(names)])
    return FunctionExpression("map", keys, values).alias("attributes")
