"""A generated log as files: raw Parquet for ingest, or an `events` artifact."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from data import parts
from data.artifacts import OutputDir
from data.context import Metrics
from data.generator import log, tables
from data.generator.config import Config
from data.generator.plan import Plan, make_plan
from data.schema import ADVERTISERS, CAMPAIGNS, EVENTS, MICROS_PER_DAY, PRODUCTS, QUARANTINE, USERS

_CATALOGUE = {
    "products": (PRODUCTS, tables.products),
    "advertisers": (ADVERTISERS, tables.advertisers),
    "campaigns": (CAMPAIGNS, tables.campaigns),
    "users": (USERS, tables.users),
}
_ALL_DIFFER = {"event_id", "request_id", "ts", "known_at"}
"""Columns for which a dictionary costs time and saves nothing."""


def raw(config: Config, folder: Path, days: Iterable[int] | None = None) -> dict[str, int]:
    """Write `events/<date>.parquet` of `days` (all by default), the catalogue's tables and truth/ below `folder`.

    Returns the rows of each event file. A day's file is equal whatever else is written, so that days may be spread
    over calls and processes. Memory: a few slices of a day, and the plan.
    """
    plan = make_plan(config)
    for name, (schema, pieces) in _CATALOGUE.items():
        _write(folder / f"{name}.parquet", schema, pieces(plan))
    _write(folder / "truth/interests.parquet", tables.INTERESTS, tables.interests(plan))
    _write(folder / "truth/bots.parquet", tables.BOTS, [tables.bots(plan)])
    (folder / "truth/facts.json").write_text(json.dumps(tables.facts(plan), indent=1), encoding="utf-8")
    files = {_part(plan, number): number for number in (range(config.days) if days is None else days)}
    return {name: _write(folder / name, EVENTS, _ahead(log.day(plan, number))) for name, number in files.items()}


def artifact(config: Config, out: OutputDir, days: Iterable[int] | None = None) -> Metrics:
    """Write an `events` artifact of `days` in order (all by default), with truth/ as `raw`; returns its summary."""
    plan = make_plan(config)
    wanted = range(config.days) if days is None else days
    found = _Summary()
    stream = (table for number in wanted for table in log.day(plan, number))
    rows = {"events": parts.write_events(out, found.watch(_ahead(stream)))}
    for name, (schema, pieces) in _CATALOGUE.items():
        rows[name] = out.write_batches(f"{name}.parquet", schema, pieces(plan))
    out.write_table("quarantine.parquet", QUARANTINE.empty_table())
    out.write_batches("truth/interests.parquet", tables.INTERESTS, tables.interests(plan))
    out.write_table("truth/bots.parquet", tables.bots(plan))
    out.write_json("truth/facts.json", tables.facts(plan))
    summary = {"name": "generated", "time_kind": "clock", "rows": rows, **found.figures()}
    out.write_json("summary.json", summary)
    return summary


class _Summary:
    """Counts by type and the span of the events that pass."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.spans: list[int] = []

    def watch(self, stream: Iterable[pa.Table]) -> Iterator[pa.Table]:
        for piece in stream:
            for pair in pc.value_counts(piece["event_type"]).to_pylist():
                self.counts[pair["values"]] += pair["counts"]
            self.spans += [value.as_py() for value in pc.min_max(piece["ts"]).values()]
            yield piece

    def figures(self) -> dict[str, Any]:
        names = sorted(self.counts)
        return {
            "first_ts": min(self.spans, default=None),
            "last_ts": max(self.spans, default=None),
            "counts": {name: self.counts[name] for name in names},
            "sample_prob": {name: {"min": 1.0, "max": 1.0} for name in names},
        }


def _part(plan: Plan, number: int) -> str:
    return parts.part_name(plan.config.first_micros // MICROS_PER_DAY + number)


def _ahead(stream: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The stream with its next piece being made while the last one is written: both release the interpreter."""
    with ThreadPoolExecutor(1) as maker:
        coming = maker.submit(next, stream, None)
        while (piece := coming.result()) is not None:
            coming = maker.submit(next, stream, None)
            yield piece


def _write(path: Path, schema: pa.Schema, pieces: Iterable[pa.Table]) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    shared = [
        name for name in schema.names if name not in _ALL_DIFFER and not pa.types.is_nested(schema.field(name).type)
    ]
    count = 0
    with pq.ParquetWriter(
        path, schema, compression="snappy", use_dictionary=shared, write_page_checksum=True
    ) as writer:
        for piece in pieces:
            writer.write_table(piece, row_group_size=1 << 19)
            count += len(piece)
    return count
