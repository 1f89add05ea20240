"""Files of one's own: Parquet, CSV or JSON lines, whatever their columns are called, through a mapping.

Each table lists its files and which of their columns holds what; cells are read as text first, so that every cell
that does not fit can be named by file, row and column.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import duckdb
from pydantic import Field, ValidationInfo, model_validator

from data import quality, schema
from data.context import RunContext, StageConfig, execution
from data.engine import Engine
from data.errors import BadDataError, nearest
from data.sources import cells
from data.sources.consumed import Consumed, Source, digest
from data.window import Window

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
TimeUnit = Literal["iso", "s", "ms", "us", "order"]


class TableFiles(StageConfig):
    """Files of one table and what their columns hold."""

    paths: tuple[str, ...] = execution(
        ..., "files or glob patterns (.parquet .csv .tsv .jsonl, text also .gz)", min_length=1
    )
    columns: dict[str, cells.Source] = Field(
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
    delimiter: str | None = Field(default=None, description="CSV delimiter; if unset a comma, or a tab in .tsv files")

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
        path = (settings.root / pattern).absolute()
        matches = [path] if path.exists() else sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
        if not matches:
            siblings = [other.name for other in path.parent.glob("*") if other.is_file()]
            hint = nearest(path.name, siblings) if siblings else "its folder has no files"
            raise BadDataError(f"expected a file {path}, found none: {hint}")
        found += matches
    return list(dict.fromkeys(found))


def identity(settings: Settings) -> list[str]:
    """Table and sha256 of each file, free of file names, for the artifact key."""
    found = [(name, path) for name, table in settings.tables().items() for path in paths_of(settings, table)]
    return sorted(f"{name}:{digest(path)}" for name, path in found)


@dataclass(frozen=True)
class Policy:
    """What is done with rows: `max_bad` is the tolerated share that breaks a rule.

    `late` is "stamp" or "drop", for new rows that were readable when the previous artifact was made; events known more
    than `max_lateness` [us] after they happened are set aside (None keeps all).
    """

    max_bad: float = 0.0
    late: str = "stamp"
    max_lateness: int | None = None


def load(engine: Engine, settings: Settings, ctx: RunContext, window: Window, policy: Policy) -> dict[str, Any]:
    """Fill the contract tables of `engine` with the window's rows; returns rows read, duplicates, late rows and files.

    Raises BadDataError for files that cannot be read as the table they should be, before any row is processed,
    or when more than `policy.max_bad` of a table's rows are broken. Raw text spills to disk above the memory limit.
    A file of events whose rows had all been read by `window.since` is not opened again.
    """
    record, root = Consumed.of(window), settings.root.absolute()
    chosen = {name: record.choose(name, paths_of(settings, table), root) for name, table in settings.tables().items()}
    for name, sources in chosen.items():
        for source in sources:
            quality.check_text(source.path)
            _cells(engine, name, settings, source)
    engine.run("cells")
    counts: dict[str, dict[str, int]] = {}
    with ctx.progress.step("read files", sum(map(len, chosen.values())), "files") as step:
        for name, sources in chosen.items():
            counts[name] = _load_table(engine, name, settings, sources, window, policy, record)
            step.advance(len(sources))
    totals = {figure: {name: of[figure] for name, of in counts.items()} for figure in ("read", "equal_duplicates")}
    extra = {name: count for of in counts.values() for name, count in of.items() if name not in totals}
    return {**totals, **extra, "files": record.as_json()}


def _load_table(
    engine: Engine,
    name: str,
    settings: Settings,
    sources: list[Source],
    window: Window,
    policy: Policy,
    record: Consumed,
) -> dict[str, int]:
    """Check and type the rows of one table, and append the sound and distinct ones to the contract table `name`."""
    if name == "events":
        _open_catalogue(engine, window)
    if not sources:
        return {"read": 0, "equal_duplicates": 0}
    _load_raw(engine, name, settings, sources)
    quality.check_cells(engine, name, settings.tables()[name].time_unit)
    params = _params(name, settings, window, policy)
    engine.run(f"typed_{name}", **params)
    engine.run("distinct", **params)
    figures = _meet_earlier(engine, params, window) if name == "events" else {}
    rows, repeated = quality.judge(engine, name, policy.max_bad, window.since is not None)
    latest = _latest(engine, params) if name == "events" and window.until is not None else []
    record.note(name, sources, {row["file"]: row["latest"] for row in latest})
    if name == "events":
        engine.run("kept_events", **params)
        figures["not_yet_known"] = sum(row["ahead"] for row in latest)
    else:
        engine.insert("kept", name)
    if name == "products":
        figures["repeated_levels"] = engine.record("repeated_levels", separator=params["separator"])["rows"]
    return {"read": rows, "equal_duplicates": repeated, **figures}


def _params(name: str, settings: Settings, window: Window, policy: Policy) -> dict[str, Any]:
    """What the queries of a table may ask for by name."""
    table = settings.tables()[name]
    bounds = window.bounds
    if table.time_unit == "order":
        bounds["latest"] = None  # numbers are no clock
    return {
        "table": name,
        "identity": _SCHEMAS[name].names[0],
        "unit": table.time_unit,
        "words": list(table.event_types),
        "types": list(table.event_types.values()),
        "known": list(schema.EVENT_TYPES),
        "separator": table.category_separator,
        "name": settings.name,
        "drop_late": policy.late == "drop",
        "max_lateness": policy.max_lateness,
        **bounds,
    }


def _latest(engine: Engine, params: dict[str, Any]) -> list[dict[str, Any]]:
    """By file, when its last row becomes readable. Only a log with an instant is built on later, so needs to know."""
    return engine.records("latest", unit=params["unit"], until=params["until"])


def _open_catalogue(engine: Engine, window: Window) -> None:
    engine.run("catalogue")
    if window.previous is not None:
        engine.run("catalogue_more", products=str(window.previous.file("products.parquet")))


def _meet_earlier(engine: Engine, params: dict[str, Any], window: Window) -> dict[str, int]:
    """Tell new rows from those ingested before, set aside what is too late, and count what is late."""
    if window.parts():
        engine.run("ingested", parts=window.old_files(window.parts()))
    engine.run("lateness", **params)
    late = engine.record("late_rows", drop_late=params["drop_late"], max_lateness=params["max_lateness"])
    return {
        "late_dropped" if params["drop_late"] else "late_stamped": late["rows"],
        "ingested_before": engine.record("ingested_rows")["rows"],
    }


def _load_raw(engine: Engine, name: str, settings: Settings, sources: list[Source]) -> None:
    """Make table `raw`: file, row and each column of the contract as text, NULL where nothing is given."""
    engine.run("drop_raw")
    for index, source in enumerate(sources):
        rows = _cells(engine, name, settings, source)
        with quality.readable(source.path):
            rows.insert_into("raw") if index else rows.create("raw")


def _cells(engine: Engine, name: str, settings: Settings, source: Source) -> duckdb.DuckDBPyRelation:
    """The raw cells of one file of a table; raises BadDataError when a mapped column is missing."""
    table = settings.tables()[name]
    path = source.path
    mapped = [column for value in table.columns.values() for column in ([value] if isinstance(value, str) else value)]
    wanted = [*mapped, *table.attributes]
    rows = cells.open_file(engine.connection, path, table.delimiter, wanted)
    quality.check_columns(path, rows.columns, wanted)
    names = _SCHEMAS[name].names
    return cells.as_text(rows, source.label, names, table.columns, table.defaults, table.attributes, source.consumed)
