"""Public ids of primitives over retrains: kept, minted or retired, and never given to another interest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from data.artifacts import ArtifactRef
from hierarchy.levels import Level, primitive_id

IDS = "ids.json"
"""File of a supergraph artifact: the next free number of each level, and the ids retired so far."""

ID_MAP = pa.schema(
    [
        pa.field("level", pa.int32(), nullable=False),
        pa.field("row", pa.int32()),
        pa.field("old_id", pa.string()),
        pa.field("new_id", pa.string()),
        pa.field("status", pa.string(), nullable=False),
        pa.field("likeness", pa.float32(), nullable=False),
        pa.field("nearest_id", pa.string()),
        pa.field("reason", pa.string(), nullable=False),
    ],
    metadata={"strata.table": "id_map", "strata.schema_version": "1"},
)
"""A row for each primitive of either vocabulary. `row`: its place in the learner, null when retired. `likeness`: that
of the pair; without a counterpart that of the nearest primitive of the other vocabulary, which is `nearest_id`."""


class Fate(NamedTuple):
    """One row of ID_MAP."""

    level: int
    row: int | None
    old_id: str | None
    new_id: str | None
    status: str
    likeness: float
    nearest_id: str | None
    reason: str


class Ledger:
    """Gives out ids and notes what became of each; numbers only grow, so no id ever means two interests.

    Its size is that of all ids ever retired: some ten bytes each.
    """

    def __init__(self, free: dict[str, int] | None = None, retired: dict[str, list[str]] | None = None) -> None:
        self.free, self.retired = dict(free or {}), {level: list(ids) for level, ids in (retired or {}).items()}
        self.fates: list[Fate] = []

    @classmethod
    def after(cls, previous: ArtifactRef) -> Ledger:
        """The ledger that goes on from the supergraph artifact `previous`."""
        known = previous.json(IDS)
        return cls(known["free"], known["retired"])

    def keep(self, level: int, row: int, identity: str, likeness: float, reason: str) -> str:
        """The primitive in `row` is the one that was published as `identity`."""
        self.fates.append(Fate(level, row, identity, identity, "kept", likeness, None, reason))
        return identity

    def mint(self, level: int, row: int, reason: str, likeness: float = 0.0, nearest: str | None = None) -> str:
        """A new id for the primitive in `row`."""
        number = self.free.get(str(level), 0)
        self.free[str(level)] = number + 1
        identity = primitive_id(level, number)
        self.fates.append(Fate(level, row, None, identity, "minted", likeness, nearest, reason))
        return identity

    def retire(self, level: int, identity: str, reason: str, likeness: float = 0.0, nearest: str | None = None) -> None:
        """No primitive is what `identity` was."""
        self.retired.setdefault(str(level), []).append(identity)
        self.fates.append(Fate(level, None, identity, None, "retired", likeness, nearest, reason))

    def id_map(self) -> pa.Table:
        """What became of every id in this run, by level, in the learner's order, the retired last; schema ID_MAP."""
        last = 1 << 62
        rows = sorted(
            self.fates, key=lambda fate: (fate.level, last if fate.row is None else fate.row, fate.old_id or "")
        )
        return pa.Table.from_pylist([fate._asdict() for fate in rows], schema=ID_MAP)

    def as_json(self) -> dict[str, Any]:
        """What the next vocabulary must know: `free` numbers and `retired` ids by level."""
        return {"free": self.free, "retired": {level: sorted(ids) for level, ids in self.retired.items()}}

    def counts(self, level: int) -> dict[str, int]:
        """How many ids of a level were kept, minted and retired in this run."""
        found = Counter(fate.status for fate in self.fates if fate.level == level)
        return {status: found[status] for status in ("kept", "minted", "retired")}


def mint_all(ledger: Ledger, levels: Sequence[Level], reason: str) -> list[Level]:
    """The levels with a new id for every primitive, numbered in the learner's order."""
    return [
        level._replace(ids=pa.array([ledger.mint(level.level, row, reason) for row in range(len(level.vectors))]))
        for level in levels
    ]
