"""A fingerprint of all that is visible in a graph at an instant: what is made of that past alone need not be remade.

Two graphs with equal fingerprints at a time t give equal answers to every question about times up to t. Whatever later
days bring, the fingerprint stays; it changes when the past was altered. It may also change where it need not, as when
the day of t was unfinished in one of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from data.artifacts import ArtifactRef
from data.parts import part_day
from data.schema import MICROS_PER_DAY
from graph.store import FORWARD, LINKS, NODE_TYPES, GraphStore, Relation

_NEVER = int(np.iinfo(np.int64).min)


def fingerprints(graph: ArtifactRef, times: Sequence[int]) -> list[str]:
    """Hex sha256 of what `graph` shows at each of `times` [us], which rise.

    Of the events by the hashes of the log's days, each counting whole from its first moment on; of node tables and
    links of the catalogue by what they hold. The fingerprint at a time depends on the times before it in `times`, so
    compare lists with the same start. Time and memory: the nodes and links, never the events.
    """
    store, records = GraphStore.open(graph), graph.json("segments.json")
    days = {name: sha for record in records for name, sha in record["days"].items()}
    links = [_links(store, relation) for relation in FORWARD if relation in LINKS]
    digest = hashlib.sha256(json.dumps(sorted({record["config"] for record in records})).encode())
    found = []
    for since, time in pairwise([_NEVER, *times]):
        over = {name: sha for name, sha in days.items() if since <= _start(name) < time}
        digest.update(json.dumps([time, over], sort_keys=True).encode())
        for kind in NODE_TYPES:
            digest.update(_nodes(store, kind, since, time))
        for visible, columns in links:
            first, last = np.searchsorted(visible, [since, time], side="right")
            for column in columns:
                digest.update(column[first:last].tobytes())
        found.append(digest.hexdigest())
    return found


def _start(name: str) -> int:
    """The first moment [us] of a part of the log; rows of it become visible later than that."""
    return part_day(name) * MICROS_PER_DAY


def _nodes(store: GraphStore, kind: str, since: int, time: int) -> bytes:
    """Ids, in internal order, and first moments of the nodes of a type that became known in (since, time] [us]."""
    known = store.known_at(kind)
    first, last = np.searchsorted(known, [since, time], side="right").tolist()
    ids = store.entity_ids(kind).slice(first, last - first)
    # Arrow may or may not write down that nothing is null, so the strings themselves are taken, with their lengths.
    lengths: bytes = pc.binary_length(ids).to_numpy().tobytes()
    return lengths + "".join(ids.to_pylist()).encode() + known[first:last].tobytes()


def _links(store: GraphStore, relation: Relation) -> tuple[NDArray[np.int64], list[NDArray[Any]]]:
    """When the links of a relation become visible [us], rising, and their columns in that order."""
    csr = store.csr(relation)
    row = np.repeat(np.arange(len(csr.rowptr) - 1), np.diff(csr.rowptr))
    order = np.argsort(csr.visible_from, kind="stable")
    visible = np.asarray(csr.visible_from)[order]
    return visible, [row[order], csr.col[order].astype(np.int64), visible, csr.times[order]]
