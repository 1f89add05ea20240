"""Stage events: raw files become the contract's tables, each sorted by identity.

The same rows give the same bytes, whatever their order in the input and however many threads read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from data import engine as engines
from data import schema
from data.artifacts import ArtifactRef, OutputDir
from data.context import Metrics, RunContext, StageConfig, execution
from data.engine import Engine
from data.sources import completejourney as journey

_TABLES = {
    "events": schema.EVENTS,
    "products": schema.PRODUCTS,
    "advertisers": schema.ADVERTISERS,
    "campaigns": schema.CAMPAIGNS,
    "users": schema.USERS,
    "quarantine": schema.QUARANTINE,
}


class Config(StageConfig):
    """Where the log comes from."""

    source: Literal["completejourney", "files"] = Field(default="completejourney", description="which reader is used")
    completejourney: journey.Settings = Field(
        default=journey.Settings(), description="settings of that source; no effect with another"
    )
    memory_limit: str = execution("2GB", "memory DuckDB may use before it spills to disk, such as '2GB'")


def source_identity(config: Config) -> list[str]:
    """What identifies the raw input in the artifact key: sha256 of every file, free of names and paths."""
    return journey.identity()


def run(config: Config, inputs: Mapping[str, ArtifactRef], out: OutputDir, ctx: RunContext) -> Metrics:
    """Read the source, check it, and write the contract's tables with a summary.

    Memory is bounded by `memory_limit` plus one batch of rows; time grows with the rows read.
    """
    with engines.session(out.work / "spill", ctx.threads, config.memory_limit) as engine:
        engine.run("contract")
        metrics = journey.load(engine, config.completejourney, ctx)
        rows = {}
        with ctx.progress.step("write tables", unit="tables") as step:
            for name, table_schema in _TABLES.items():
                rows[name] = out.write_batches(f"{name}.parquet", table_schema, engine.batches(f"write_{name}", table_schema))
                step.advance()
        summary = _summary(engine, rows)
    out.write_json("summary.json", summary)
    return {**metrics, **summary}


def _summary(engine: Engine, rows: Mapping[str, int]) -> dict[str, Any]:
    by_type = engine.rows("summary")
    return {
        "name": "completejourney",
        "time_kind": "clock",
        "first_ts": min(row[2] for row in by_type),
        "last_ts": max(row[3] for row in by_type),
        "counts": {row[0]: row[1] for row in by_type},
        "rows": dict(rows),
        "sample_prob": {row[0]: {"min": row[4], "max": row[5]} for row in by_type},
    }
