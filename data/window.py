"""Which rows an ingest takes: those that became readable after an earlier artifact was made, up to an instant.

The promise to whoever reads the log by instants: nothing that a later ingest adds has a `visible_from`, and no entity
it adds has a `known_at`, at or before the instant of the earlier one. So what was seen then is a prefix of what is
seen now, and the files of days that were over stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from data.artifacts import ArtifactRef, OutputDir
from data.engine import Engine
from data.parts import EVENT_PARTS, part_day
from data.schema import MICROS_PER_DAY

ENTITIES = ("products", "advertisers", "campaigns", "users")
_HOUR = 3_600_000_000


@dataclass(frozen=True)
class Window:
    """Rows with since < visible_from <= until [us]; None is no bound. `now` [us] is the caller's clock.

    `previous` is the artifact with everything up to `since`; both are given or neither.
    """

    since: int | None = None
    until: int | None = None
    now: int | None = None
    previous: ArtifactRef | None = None

    @property
    def latest(self) -> int | None:
        """The last instant [us] at which an event can have happened: an hour after `now`, for clocks that go fast."""
        return None if self.now is None else self.now + _HOUR

    @property
    def bounds(self) -> dict[str, Any]:
        """Parameters of the queries."""
        return {"since": self.since, "until": self.until, "latest": self.latest}

    def parts(self) -> list[str]:
        """Names of the day parts of `previous`."""
        return [] if self.previous is None else self.previous.names(EVENT_PARTS)

    def is_over(self, name: str) -> bool:
        """Whether every row of a day part was readable at `since`, so that no later row can fall into it."""
        return self.since is not None and (part_day(name) + 1) * MICROS_PER_DAY <= self.since

    def old_files(self, names: list[str]) -> list[str]:
        """Paths of files of `previous`."""
        return [] if self.previous is None else [str(self.previous.file(name)) for name in names]


def merge(engine: Engine, window: Window) -> None:
    """Put the entities of `previous` beside the rows just read, which describe an entity anew but keep its `known_at`.

    An entity that `previous` does not have becomes known just after `since` at the earliest.
    """
    if window.previous is not None:
        old = {name: str(window.previous.file(f"{name}.parquet")) for name in ENTITIES}
        engine.run("merge", since=window.since, **old)


def complete(engine: Engine, window: Window) -> None:
    """Give entities without a date theirs, and add those that are only referred to."""
    engine.run("complete", start=None if window.since is None else window.since + 1)


def cut(engine: Engine, window: Window) -> None:
    """Take away what lies outside the window, for readers that read everything, and entities not yet known."""
    if window.until is not None:
        engine.run("cut", **window.bounds)


def adopt(out: OutputDir, engine: Engine, window: Window) -> int:
    """Take the finished day parts of `previous` as they are and load the rows of an unfinished one.

    Returns the rows of the parts taken. To be called when the events table holds all new rows, before it is written.
    """
    over = [name for name in window.parts() if window.is_over(name)]
    for name in over:
        if window.previous is not None:
            out.adopt(window.previous, name)
    unfinished = window.old_files([name for name in window.parts() if name not in over])
    for path in unfinished:
        engine.run("unfinished", path=path)
    return sum(out.rows[name] for name in over)


def merged_summary(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Figures by event type over the earlier rows and the new ones, each as `ingest` wrote them."""
    kinds = sorted({*old["counts"], *new["counts"]})
    probs = {kind: [part["sample_prob"][kind] for part in (old, new) if kind in part["counts"]] for kind in kinds}
    return {
        "first_ts": min(part["first_ts"] for part in (old, new) if part["counts"]),
        "last_ts": max(part["last_ts"] for part in (old, new) if part["counts"]),
        "counts": {kind: old["counts"].get(kind, 0) + new["counts"].get(kind, 0) for kind in kinds},
        "sample_prob": {
            kind: {"min": min(p["min"] for p in found), "max": max(p["max"] for p in found)}
            for kind, found in probs.items()
        },
    }
