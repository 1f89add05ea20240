"""Stage events: raw files become the contract's tables, each sorted by identity.

The same rows give the same bytes, whatever their order in the input and however many threads read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

import data.sources.amazon_instruments
import data.sources.amazon_s3rec
import data.sources.amazon_scientific
import data.sources.fashion
import data.sources.gowalla
import data.sources.movielens
import data.sources.retailrocket
from data import engine as engines
from data import parts, schema
from data import window as windows
from data.artifacts import ArtifactRef, OutputDir
from data.context import Metrics, RunContext, StageConfig, UtcTime, execution
from data.engine import Engine
from data.errors import BadDataError, nearest
from data.sources import completejourney as journey
from data.sources import consumed
from data.sources import files as own
from data.window import Window

_TABLES = {
    "products": schema.PRODUCTS,
    "advertisers": schema.ADVERTISERS,
    "campaigns": schema.CAMPAIGNS,
    "users": schema.USERS,
    "quarantine": schema.QUARANTINE,
}

SOURCES: dict[str, ModuleType] = {
    "completejourney": journey,
    "files": own,
    "gowalla": data.sources.gowalla,
    "amazon_s3rec": data.sources.amazon_s3rec,
    "amazon_instruments": data.sources.amazon_instruments,
    "amazon_scientific": data.sources.amazon_scientific,
    "retailrocket": data.sources.retailrocket,
    "movielens": data.sources.movielens,
    "fashion": data.sources.fashion,
}
"""Readers by name. Each has `Settings` with `name` and `time_kind`, `identity(settings)`, which names the raw input
without its paths, and `load(engine, settings, ctx)`, which fills the contract's tables and returns figures. The `load`
of those in `_BY_WINDOW` also takes the `window` and reads its rows only; those of others are cut to it afterwards."""

_BY_WINDOW = ("completejourney", "files")


class Config(StageConfig):
    """Where the log comes from."""

    source: str = Field(default="completejourney", description="which reader is used: a name in `SOURCES`")
    completejourney: journey.Settings = Field(
        default=journey.Settings(), description="part of the public data set; no effect with another source"
    )
    files: own.Settings | None = Field(
        default=None, description="own files and their column mapping; no effect with another source"
    )
    gowalla: data.sources.gowalla.Settings | None = Field(
        default=None, description="where Gowalla lies; no effect unless chosen"
    )
    amazon_s3rec: data.sources.amazon_s3rec.Settings | None = Field(
        default=None, description="where Amazon Beauty, Sports and Toys lie, and which is read; no effect unless chosen"
    )
    amazon_instruments: data.sources.amazon_instruments.Settings | None = Field(
        default=None, description="where Amazon Instruments lies; no effect unless chosen"
    )
    amazon_scientific: data.sources.amazon_scientific.Settings | None = Field(
        default=None, description="where Amazon Scientific lies; no effect unless chosen"
    )
    retailrocket: data.sources.retailrocket.Settings | None = Field(
        default=None, description="where RetailRocket lies; no effect unless chosen"
    )
    movielens: data.sources.movielens.Settings | None = Field(
        default=None, description="where MovieLens-100k lies, and how stars are read; no effect unless chosen"
    )
    fashion: data.sources.fashion.Settings | None = Field(
        default=None, description="where the fashion catalogue lies, and what is simulated; no effect unless chosen"
    )
    as_of: UtcTime | None = Field(
        default=None,
        description="take only what was readable at this instant (UTC), and of earlier artifacts what they hold; "
        "everything if unset",
    )
    late: Literal["stamp", "drop"] = Field(
        default="stamp",
        description="rows that come after an earlier as_of but say they were readable before it: 'stamp' makes them "
        "readable just after it, 'drop' leaves them out; no effect but with own files and as_of",
    )
    max_lateness_days: float | None = Field(
        default=None,
        ge=0,
        description="events known more than so many days after they happened are set aside; none if unset; no effect "
        "but with own files",
    )
    now: UtcTime | None = Field(
        default=None,
        description="instant of reading: events dated more than an hour later are set aside; the clock if unset; no "
        "effect but with own files",
    )
    max_bad: float = execution(
        0.001, "share [0-1] of a table's rows that may break a rule; no effect but with own files", ge=0, le=1
    )
    memory_limit: str = execution("2GB", "memory DuckDB may use before it spills to disk, such as '2GB'")

    @model_validator(mode="after")
    def _source_given(self) -> Self:
        if self.source not in SOURCES:
            raise ValueError(f"no source {self.source!r}: {nearest(self.source, SOURCES)}")
        if getattr(self, self.source) is None:
            raise ValueError(
                f"source {self.source!r} needs a section [events.{self.source}] that says where its files are"
            )
        return self

    @property
    def chosen(self) -> Any:
        """The settings of the chosen source."""
        return getattr(self, self.source)

    def result_fields(self) -> dict[str, Any]:
        """Fields that can change results: those of the chosen source only."""
        kept = super().result_fields()
        policy = ("late", "max_lateness_days", "now") if self.source == "files" else ()
        return {name: kept[name] for name in ("source", self.source, "as_of", *policy)}

    def lineage_fields(self) -> dict[str, Any]:
        """Those of them that artifacts of one growing log share: all but `as_of`."""
        return {name: value for name, value in self.result_fields().items() if name != "as_of"}


def source_identity(config: Config) -> list[str]:
    """What identifies the raw input in the artifact key: sha256 of every file, free of names and paths.

    Raises BadDataError when a file is missing.
    """
    identity: list[str] = SOURCES[config.source].identity(config.chosen)
    return identity


def run(config: Config, inputs: Mapping[str, ArtifactRef], out: OutputDir, ctx: RunContext) -> Metrics:
    """Read the source, check it, and write the contract's tables with a summary.

    With an input `previous` (an artifact of the same log with an earlier `as_of`), only what became readable since is
    read and written; its finished days are taken as they are. Memory is bounded by `memory_limit` plus one batch of
    rows; time grows with the rows read, and by one pass over the identities of the earlier log. Raises BadDataError
    for files or rows that break the contract, or when no event was readable at `as_of`.
    """
    window = _window(config, inputs, ctx)
    reader = SOURCES[config.source]
    with engines.session(out.work / "spill", ctx.threads, config.memory_limit) as engine:
        engine.run("contract")
        metrics = reader.load(engine, config.chosen, ctx, **_options(config, window))
        windows.merge(engine, window)
        windows.complete(engine, window)
        windows.cut(engine, window)
        summary = _summary(engine, config, window)
        metrics["late_events"] = engine.record("late_events")["rows"]
        taken = windows.adopt(out, engine, window)
        summary["rows"] = _write(engine, out, ctx)
        summary["rows"]["events"] += taken
        metrics["quarantined"] = {f"{table}: {rule}": count for table, rule, count in engine.rows("findings")}
    out.write_json("summary.json", summary)
    if "files" in metrics:
        out.write_json(consumed.FILE, metrics.pop("files"))
    return {**metrics, **summary, "parts_taken": len(out.adopted)}


def _window(config: Config, inputs: Mapping[str, ArtifactRef], ctx: RunContext) -> Window:
    previous = inputs.get("previous")
    since = None if previous is None else previous.json("summary.json")["as_of"]
    until = None if config.as_of is None else schema.to_micros(config.as_of)
    return Window(since, until, ctx.now if config.now is None else schema.to_micros(config.now), previous)


def _options(config: Config, window: Window) -> dict[str, Any]:
    """What the chosen reader's `load` takes beside its settings."""
    if config.source == "files":
        lateness = config.max_lateness_days
        most = None if lateness is None else int(lateness * schema.MICROS_PER_DAY)
        return {"window": window, "policy": own.Policy(config.max_bad, config.late, most)}
    return {"window": window} if config.source in _BY_WINDOW else {}


def _summary(engine: Engine, config: Config, window: Window) -> dict[str, Any]:
    """Name, kind of time, instant and figures by event type of the whole log, from those of its new rows."""
    figures = _by_type(engine)
    if window.previous is not None:
        figures = windows.merged_summary(window.previous.json("summary.json"), figures)
    if not figures["counts"]:
        found = "none" if config.as_of is None else f"none that was readable at {config.as_of}: choose a later as_of"
        raise BadDataError(f"expected events, found {found}")
    chosen = config.chosen
    made_up = {"simulated": True} if getattr(chosen, "simulated", False) else {}
    return {"name": chosen.name, "time_kind": chosen.time_kind, "as_of": window.until, **made_up, **figures}


def _write(engine: Engine, out: OutputDir, ctx: RunContext) -> dict[str, int]:
    """Write every contract table, and the split of a set that has one; returns their rows."""
    total = engine.record("total_rows")["rows"]
    with ctx.progress.step("write tables", total, "rows") as step:

        def pieces(name: str, columns: pa.Schema) -> Iterator[pa.Table]:
            for piece in engine.tables(f"write_{name}", columns):
                yield piece
                step.advance(piece.num_rows)

        rows = {"events": parts.write_events(out, pieces("events", schema.EVENTS))}
        for name, columns in _TABLES.items():
            rows[name] = out.write_batches(f"{name}.parquet", columns, pieces(name, columns))
        if engine.record("count_split")["rows"]:
            rows["split"] = out.write_batches("split.parquet", schema.SPLIT, pieces("split", schema.SPLIT))
        return rows


def _by_type(engine: Engine) -> dict[str, Any]:
    """First and last event, and counts and bounds of the sampling probability by event type."""
    found = engine.records("summary")
    return {
        "first_ts": min((row["first_ts"] for row in found), default=None),
        "last_ts": max((row["last_ts"] for row in found), default=None),
        "counts": {row["event_type"]: row["events"] for row in found},
        "sample_prob": {row["event_type"]: {"min": row["least_prob"], "max": row["greatest_prob"]} for row in found},
    }
