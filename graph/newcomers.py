"""Entities that came after a graph was made, laid over it: they see the graph, and nobody sees them.

A newcomer has links of the catalogue and users who engaged with it, and the users' other engagement lies behind those.
Users do not have the newcomer among theirs, so that nothing sampled for one newcomer depends on another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from data.artifacts import ArtifactRef
from data.schema import EVENT_TYPES
from graph.sampler import Budget, TemporalSampler
from graph.store import ENGAGED, IN_CATEGORY, OWNED_BY, Csr, GraphStore, Relation


@dataclass(frozen=True)
class Newcomers:
    """n newcomers of one type, `product` or `advertiser`, by external id.

    owner and category: the advertiser and the known category of each as ids of the graph, int64 (n,), -1 for none.
    users: who engaged with each, as ids of the graph, oldest first.
    """

    kind: str
    ids: Sequence[str]
    owner: NDArray[np.int64]
    category: NDArray[np.int64]
    users: Sequence[NDArray[np.int64]]


class NewcomerStore(GraphStore):
    """A graph with newcomers at its end, all seen at `time` [us]: the i-th has internal id `first` + i."""

    def __init__(self, ref: ArtifactRef, newcomers: Newcomers, time: int, event_type: str) -> None:
        super().__init__(ref)
        self.newcomers, self.first = newcomers, self.num_nodes[newcomers.kind]
        self.num_nodes = self.num_nodes | {newcomers.kind: self.first + len(newcomers.ids)}
        self._more = self._edges(time, EVENT_TYPES.index(event_type))

    def entity_ids(self, node_type: str) -> pa.Array:
        """External ids, string (n,), newcomers last."""
        known = super().entity_ids(node_type)
        if node_type != self.newcomers.kind:
            return known
        return pa.concat_arrays([known, pa.array(list(self.newcomers.ids), pa.string())])

    def segments(self, relation: Relation) -> tuple[Csr, ...]:
        """The segments of the graph, then one of the newcomers' edges if they have any."""
        more = self._more.get(relation)
        return super().segments(relation) if more is None else (*super().segments(relation), more)

    def _edges(self, time: int, event: int) -> dict[Relation, Csr]:
        new = self.newcomers
        found = {ENGAGED[new.kind].reverse: self._csr(list(new.users), time, event)}
        if new.kind == "product":
            for relation, target in ((OWNED_BY, new.owner), (IN_CATEGORY, new.category)):
                found[relation] = self._csr([own[own >= 0] for own in target[:, None]], time, None)
        return {relation: csr for relation, csr in found.items() if csr.num_edges}

    def _csr(self, targets: Sequence[NDArray[np.int64]], time: int, event: int | None) -> Csr:
        counts = np.array([len(part) for part in targets], np.int64)
        rowptr = np.concatenate([np.zeros(self.first + 1, np.int64), np.cumsum(counts)])
        col: NDArray[Any] = np.concatenate([np.zeros(0, np.int64), *targets])
        kind = None if event is None else np.full(len(col), event, np.int8)
        # All are visible at `time`; of equal instants the last one counts as the newest.
        back = np.concatenate([np.zeros(0, np.int64), *(np.arange(count)[::-1] for count in counts)])
        return Csr(rowptr, col, np.full(len(col), time), time - 1 - back, kind=kind)


class NewcomerSampler(TemporalSampler):
    """Token sets of newcomers; what is drawn at random hangs on their external ids, never on their place."""

    def __init__(self, store: NewcomerStore, budget: Budget) -> None:
        super().__init__(store, budget)
        self._first, self._numbers = store.first, torch.tensor([number_of(name) for name in store.newcomers.ids])

    def numbers(self, node_type: str, nodes: Tensor) -> Tensor:
        """A number of each newcomer that depends on its external id alone, int64 (B,)."""
        return self._numbers[nodes - self._first]


def number_of(name: str) -> int:
    """A 62-bit number of an external id."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") >> 2
