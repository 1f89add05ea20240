"""Entities that two embeddings artifacts both hold: what an old and a new run are compared by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data.artifacts import ArtifactRef
from data.timegrid import EMBEDDINGS
from graph.store import index_in
from hierarchy.asof import AsOfVectors
from hierarchy.bags import Vectors

_COLUMNS = ["entity_type", "entity_id", "head", "vector", "as_of"]


class Anchors(NamedTuple):
    """n entities of one type: old unit vectors float32 (n, H, d), new ones (n, G, e), weight float64 (n,) summing to 1.

    An entity counts with the log of its degree: what is known well says more about where a space has turned.
    """

    kind: str
    old: Vectors
    new: Vectors
    weight: NDArray[np.float64]


def anchors(previous: ArtifactRef, entities: Mapping[str, AsOfVectors], time: int, most: int) -> list[Anchors]:
    """Anchors by type between the old embeddings `previous`, each entity's last row at or before `time` [us], and the
    new ones in `entities`; types with none are left out.

    At most `most` entities a type are looked for, spread evenly over the ids of the new run. One pass over the old
    file; memory: `most` x heads x dimension x 4 bytes for each type and side.
    """
    chosen = {
        kind: np.arange(0, len(new.entity_id), max(1, -(-len(new.entity_id) // most))) for kind, new in entities.items()
    }
    olds = {kind: _Newest(new.entity_id.take(pa.array(chosen[kind]))) for kind, new in entities.items()}
    for batch in previous.batches(EMBEDDINGS, _COLUMNS):
        known = batch.filter(pc.less_equal(batch["as_of"], time))
        for kind, old in olds.items():
            old.add(known.filter(pc.equal(known["entity_type"], kind)))
    found = []
    for kind, new in sorted(entities.items()):
        rows = chosen[kind][olds[kind].known]
        if len(rows):
            weight = np.log(2.0 + new.degree[rows])
            found.append(Anchors(kind, olds[kind].vectors[olds[kind].known], new.vectors[rows], weight / weight.sum()))
    return found


class _Newest:
    """The last vectors (n, H, d) of `ids` in rows that come in order of their date; `known` (n,) tells who has any."""

    def __init__(self, ids: pa.Array) -> None:
        self.ids = ids
        self.vectors = np.zeros((len(ids), 0, 0), np.float32)
        self.known = np.zeros(len(ids), np.bool_)

    def add(self, rows: pa.RecordBatch) -> None:
        """Take what `rows` say of the ids; the last row of an entity and head stays."""
        place, head = index_in(rows["entity_id"], self.ids), rows["head"].to_numpy()
        own = np.flatnonzero(place >= 0)
        if not len(own):
            return
        dim, heads = rows["vector"].type.list_size, max(self.vectors.shape[1], int(head[own].max()) + 1)
        if self.vectors.shape[1:] != (heads, dim):
            wider = np.zeros((len(self.ids), heads, dim), np.float32)
            wider[:, : self.vectors.shape[1], : self.vectors.shape[2]] = self.vectors
            self.vectors = wider
        self.vectors[place[own], head[own]] = rows["vector"].take(pa.array(own)).flatten().to_numpy().reshape(-1, dim)
        self.known[place[own]] = True
