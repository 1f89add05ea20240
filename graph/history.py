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
from graph.arrays import load
from graph.ids import NODES
from graph.segments import Segment
from graph.store import NODE_TYPES
from graph.together import lends


@dataclass
class History:
    """Segments of the `previous` graph that this one would make alike, in time order: their records by their days."""

    previous: ArtifactRef | None = None
    records: dict[tuple[int, ...], dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, previous: ArtifactRef | None, events: ArtifactRef, config: str) -> History:
        """The leading segments of `previous` whose days `events` holds unchanged, of configuration `config`."""
        history = cls(previous)
        ahead = list(days(events))
        for record in previous.json("segments.json") if previous else ():
            own = tuple(ahead[: len(record["days"])])
            if record["config"] != config or record["days"] != causes(events, own):
                break
            history.records[own] = record
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

    def named(self, kind: str) -> pa.Table:
        """Ids (schema NODES) that events of the lent days named, with when they first did."""
        if self.previous is None or not self.records:
            return NODES.empty_table()
        end = (max(self.records)[-1] + 1) * MICROS_PER_DAY
        first = load(self.previous.file(f"nodes/{kind}.event_at.npy"))
        ids = self.previous.table(f"nodes/{kind}.parquet", ["entity_id"])["entity_id"]
        keep = first <= end
        return pa.Table.from_arrays([ids.filter(pa.array(keep)), pa.array(first[keep])], schema=NODES)

    def checked(self, nodes: Nodes) -> History:
        """Itself if every node of the lent segments has kept its number, else nothing."""
        if self.previous is None or not self.records:
            return self
        if any(record["nodes"] != nodes.sizes(own[-1]) for own, record in self.records.items()):
            return History()
        for kind, count in self.records[max(self.records)]["nodes"].items():
            then = self.previous.table(f"nodes/{kind}.parquet", ["entity_id"]).slice(0, count)
            now = read_parquet(nodes.files[kind], ["entity_id"]).slice(0, count)
            if not then.combine_chunks().equals(now.combine_chunks()):
                return History()
        return self


class Nodes:
    """Node tables as files, and how many nodes of each type were known when."""

    def __init__(self, folder: Path) -> None:
        self.files = {kind: folder / f"{kind}.parquet" for kind in NODE_TYPES}
        self._known = {
            kind: read_parquet(file, ["known_at"])["known_at"].to_numpy() for kind, file in self.files.items()
        }

    @property
    def totals(self) -> dict[str, int]:
        """All nodes by type."""
        return {kind: len(known) for kind, known in self._known.items()}

    def sizes(self, day: int) -> dict[str, int]:
        """Nodes by type that are known at the end of a day."""
        end = (day + 1) * MICROS_PER_DAY
        return {kind: int(np.searchsorted(known, end, "right")) for kind, known in self._known.items()}


def causes(events: ArtifactRef, own: tuple[int, ...]) -> dict[str, str]:
    """sha256 of the log's parts of some days, by name."""
    return {part_name(day): str(events.manifest["files"][part_name(day)]["sha256"]) for day in own}


def config_hash(config: StageConfig) -> str:
    """16 hex digits of all that can change a segment's bytes beside its days."""
    return hashlib.sha256(json.dumps(config.result_fields(), sort_keys=True).encode()).hexdigest()[:16]
