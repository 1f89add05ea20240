"""What a graph of an earlier day can lend to this one: its segments, and which ids its events named.

Only an accelerator: whatever is taken is what would have been made, else it is not taken.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from data.artifacts import ArtifactRef, read_parquet
from data.context import StageConfig
from data.parts import days, part_name
from data.schema import MICROS_PER_DAY
from graph.catalogue import Catalogue
from graph.ids import NODES
from graph.segments import Segment
from graph.store import NODE_TYPES
from graph.together import lends

_BEFORE_ALL = int(np.iinfo(np.int64).min)


@dataclass
class History:
    """Segments of the `previous` graph that this one would make alike, in time order: their records by their days."""

    previous: ArtifactRef | None = None
    records: dict[tuple[int, ...], dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, previous: ArtifactRef | None, events: ArtifactRef, catalogue: Catalogue, config: str) -> History:
        """The leading segments of `previous` whose days `events` holds unchanged, with all that `catalogue` knew by
        their end, of configuration `config`."""
        history = cls(previous)
        ahead = list(days(events))
        last: int | None = None
        for record in previous.json("segments.json") if previous else ():
            own = tuple(ahead[: len(record["days"])])
            if len(own) < len(record["days"]):
                break
            if any(record[name] != cause for name, cause in causes(events, catalogue, config, own, last).items()):
                break
            history.records[own], last = record, own[-1]
            ahead = ahead[len(own) :]
        if previous and history.records and not lends(previous, max(history.records)[-1] + 1):
            return cls()
        return history if history.records else cls()

    def within(self, segment: Segment) -> list[tuple[int, ...]]:
        """The days of each lent segment that lies inside `segment`, in time order."""
        inside = set(segment.days)
        return [own for own in self.records if inside.issuperset(own)]

    def folder(self, own: tuple[int, ...]) -> Path:
        """Where the lent segment of these days lies."""
        assert self.previous is not None
        return self.previous.path / "segments" / str(self.records[own]["name"])

    @property
    def end(self) -> int:
        """The last moment [us] of what the lent segments know."""
        return _end(max(self.records)[-1]) if self.records else _BEFORE_ALL

    def settled(self, kind: str) -> pa.Table:
        """The nodes of a type (schema NODES) that were known by the end of the lent days: their numbers stand."""
        if self.previous is None or not self.records:
            return NODES.empty_table()
        count = self.records[max(self.records)]["nodes"][kind]
        return self.previous.table(f"nodes/{kind}.parquet", NODES.names).slice(0, count)


class Nodes:
    """Node tables as files, and how many nodes of each type were known when."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = {kind: folder / f"{kind}.parquet" for kind in NODE_TYPES}
        self._known = {
            kind: read_parquet(file, ["known_at"])["known_at"].to_numpy() for kind, file in self.files.items()
        }

    def ids(self, scan: str) -> Path:
        """Folder of the internal ids of what a scan names."""
        return self.folder / "ids" / scan

    @property
    def totals(self) -> dict[str, int]:
        """All nodes by type."""
        return {kind: len(known) for kind, known in self._known.items()}

    def sizes(self, day: int) -> dict[str, int]:
        """Nodes by type that are known at the end of a day."""
        return {kind: int(np.searchsorted(known, _end(day), "right")) for kind, known in self._known.items()}


def causes(
    events: ArtifactRef, catalogue: Catalogue, config: str, own: tuple[int, ...], last: int | None
) -> dict[str, Any]:
    """All that decides the bytes of a segment of days `own` that comes after day `last` (None: the first one).

    Its parts of the log by sha256, what the catalogue came to know meanwhile, and the configuration; with the same of
    all segments before, its nodes too.
    """
    after = _end(last) if last is not None else _BEFORE_ALL
    return {
        "days": {part_name(day): str(events.manifest["files"][part_name(day)]["sha256"]) for day in own},
        "catalogue": catalogue.digest(after, _end(own[-1])),
        "config": config,
    }


def _end(day: int) -> int:
    """The last moment [us] of what is known at the end of a day."""
    return (day + 1) * MICROS_PER_DAY


def config_hash(config: StageConfig) -> str:
    """16 hex digits of all that can change a segment's bytes beside its days."""
    return hashlib.sha256(json.dumps(config.result_fields(), sort_keys=True).encode()).hexdigest()[:16]
