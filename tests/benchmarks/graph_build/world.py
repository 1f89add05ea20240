"""The generated log of the benchmark as `events` artifacts: whole, and as it was readable at an earlier midnight."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from data.artifacts import ArtifactRef, Store
from data.errors import SystemStateError
from data.generator import write
from data.generator.config import Config
from data.parts import EVENT_PARTS, part_day
from data.schema import MICROS_PER_DAY

BYTES_PER_EVENT = 300
"""Disk that a benchmark needs for each event: the log, the graph with its work folder, and a peer's copy."""

_CATALOGUE = ("products", "advertisers", "campaigns", "users")


def sized(events: int, days: int, seed: int, entities_of: int | None = None) -> Config:
    """A log whose entities grow with its events, so that a node's degree does not depend on the size; or with as many
    entities as a log of `entities_of` events has."""
    scale = entities_of or events
    users, products, advertisers = max(scale // 50, 100), max(scale // 200, 200), max(scale // 20_000, 10)
    return Config(
        users=users,
        products=products,
        advertisers=advertisers,
        campaigns=advertisers // 2,
        events=events,
        days=days,
        seed=seed,
    )


def check_disk(folder: Path, events: int) -> None:
    """Raise SystemStateError when the files of a run on `events` events may not fit below `folder`."""
    free, needed = shutil.disk_usage(folder).free, events * BYTES_PER_EVENT
    if free < needed:
        raise SystemStateError(
            f"expected {needed / 1e9:.0f} GB free in {folder} for {events:,} events, found {free / 1e9:.0f} GB: "
            "choose another --scratch or fewer --events"
        )


def generate(store: Store, config: Config) -> tuple[ArtifactRef, float]:
    """The whole log, and the seconds its making took."""
    started = time.monotonic()
    key = f"whole-{config.events}"
    with store.publish("events", key, {}) as (out, extras):
        extras["metrics"] = write.artifact(config, out)
    return store.get("events", key), time.monotonic() - started


def before_last_day(store: Store, whole: ArtifactRef) -> ArtifactRef:
    """What was readable of a log at the midnight that begins its last day; finished days are the same files."""
    names = whole.names(EVENT_PARTS)
    midnight = part_day(names[-1]) * MICROS_PER_DAY
    key = f"{whole.key}-before-last-day"
    with store.publish("events", key, {}) as (out, extras):
        for name in names[:-1]:
            out.adopt(whole, name)
        for name in _CATALOGUE:
            table = whole.table(f"{name}.parquet")
            out.write_table(f"{name}.parquet", table.filter(pc.less_equal(table["known_at"], midnight)))
        out.adopt(whole, "quarantine.parquet")
        extras["metrics"] = _summary(whole, out.rows)
        out.write_json("summary.json", extras["metrics"])
    return store.get("events", key)


def _summary(whole: ArtifactRef, rows: dict[str, int]) -> dict[str, Any]:
    counted = {name: rows[f"{name}.parquet"] for name in _CATALOGUE}
    events = sum(count for name, count in rows.items() if name.startswith(EVENT_PARTS))
    return {**whole.json("summary.json"), "rows": {"events": events, **counted}}


def size_mb(ref: ArtifactRef, folder: str = "") -> float:
    """Megabytes of the artifact's files, or of those below `folder`."""
    return sum(int(file["bytes"]) for name, file in ref.manifest["files"].items() if name.startswith(folder)) / 1e6
