"""What the learner and its vocabulary see of a growing log: only what was visible before t0, so only that is their key.

Fingerprints stand for the keys of graph and features wherever nothing later is read. A learner is thus found again on
any later day, and never where the past was altered, be it the description of one product.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import graph.past
from data.artifacts import ArtifactRef
from data.timegrid import EMBEDDINGS, file_date
from graph.store import GraphStore, index_in
from hierarchy.content import WITH_CONTENT
from hierarchy.dates import cause_of

_CHUNK = 1 << 16
_NEVER = int(np.iinfo(np.int64).min)
_ARRAYS = ("content", "parts", "mask")


class Past(NamedTuple):
    """Hex sha256 of what was visible at a time: of the graph, and of the content of the entities known by then."""

    graph: str
    features: str


def fingerprints(graph_ref: ArtifactRef, features: ArtifactRef, times: Sequence[int]) -> list[Past]:
    """The past at each of `times` [us], which rise; compare lists with the same start (graph.past.fingerprints).

    Time: one pass over the nodes, their content and the links of the catalogue. Memory: 65,536 rows of content.
    """
    found = [_Content(features, GraphStore.open(graph_ref), kind) for kind in WITH_CONTENT]
    digest = hashlib.sha256()
    if features.has("encoder.json"):
        digest.update(features.file("encoder.json").read_bytes())
    seen = []
    for since, time in pairwise([_NEVER, *times]):
        for content in found:
            content.add(digest, since, time)
        seen.append(digest.hexdigest())
    return [Past(*both) for both in zip(graph.past.fingerprints(graph_ref, times), seen, strict=True)]


def of_learner(inputs: Mapping[str, ArtifactRef], time: int) -> dict[str, str]:
    """What a learner sees of its inputs `graph` and `features` when it looks at nothing after `time` [us], by input."""
    return fingerprints(inputs["graph"], inputs["features"], [time])[0]._asdict()


def of_vocabulary(inputs: Mapping[str, ArtifactRef], time: int) -> dict[str, str]:
    """The same of a vocabulary, which reads `embeddings` up to `time` and titles and categories of `events` too."""
    store, embeddings = GraphStore.open(inputs["graph"]), inputs["embeddings"]
    known = int(np.searchsorted(store.known_at("product"), time, side="right"))
    rows = inputs["events"].table("products.parquet", ["product_id", "title", "category"])
    place = index_in(store.entity_ids("product").slice(0, known), rows["product_id"].combine_chunks())
    words = hashlib.sha256()
    for batch in rows.take(pa.array(place[place >= 0])).combine_chunks().to_batches(_CHUNK):
        words.update(json.dumps(batch.to_pylist()).encode())
    dates = {name: embeddings.version(name) for name in embeddings.names(EMBEDDINGS) if file_date(name) <= time}
    return of_learner(inputs, time) | {"embeddings": cause_of(dates), "events": words.hexdigest()}


class _Content:
    """The content of the nodes of a type in internal order, which is the order in which they became known."""

    def __init__(self, features: ArtifactRef, store: GraphStore, kind: str) -> None:
        self.known, self.row = store.known_at(kind), np.full(store.num_nodes[kind], -1, np.int64)
        self.arrays: list[NDArray] = []
        if features.has(f"content_{kind}.npy"):
            ids = features.table(f"entities_{kind}.parquet", ["entity_id"])["entity_id"].combine_chunks()
            self.row = index_in(store.entity_ids(kind), ids)
            names = [f"{name}_{kind}.npy" for name in _ARRAYS]
            self.arrays = [features.array(name) for name in names if features.has(name)]

    def add(self, digest: hashlib._Hash, since: int, time: int) -> None:
        """Take in the nodes that became known in (since, time] [us]."""
        first, last = np.searchsorted(self.known, [since, time], side="right").tolist()
        for start in range(first, last, _CHUNK):
            rows = self.row[start : min(start + _CHUNK, last)]
            digest.update((rows >= 0).tobytes())
            for array in self.arrays:
                digest.update(np.ascontiguousarray(array[rows[rows >= 0]]).tobytes())
