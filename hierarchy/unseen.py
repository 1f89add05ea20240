"""Vectors and tokens of products and advertisers that no run has seen, from what is said of them and whatever edges
there are: one forward pass of the frozen learner.

Each is encoded as if it came alone: its draws hang on its own id, no newcomer is another's neighbour, and rows go
through the network in chunks of one shape. So its vector is bitwise the same in any company.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data.artifacts import ArtifactRef
from data.categories import category_ids
from data.errors import BadDataError, UsageError, nearest
from data.schema import EVENT_TYPES, TOKENS
from encoders.newcomers import NewContent, Row, content_of
from graph.newcomers import Newcomers, NewcomerSampler, NewcomerStore
from graph.sampler import Budget
from graph.store import GraphStore
from hierarchy.bags import Vectors
from hierarchy.content import WITH_ID, ContentTable, open_content
from hierarchy.inference import FrozenLearner, encode_nodes
from hierarchy.lending import lent
from hierarchy.levels import bags_of, published
from hierarchy.tokens import token_table


class Frozen(NamedTuple):
    """The artifacts of one run that newcomers are read with."""

    graph: ArtifactRef
    features: ArtifactRef
    learner: ArtifactRef
    supergraph: ArtifactRef


class NewVectors(NamedTuple):
    """Unit vectors float32 (n, d) in the order of `ids`, their tokens (schema TOKENS), and by path why a picture could
    not be read."""

    ids: list[str]
    vectors: Vectors
    tokens: pa.Table
    unread: dict[str, str]


def embed_new(
    frozen: Frozen,
    kind: str,
    rows: Sequence[Row],
    as_of: int,
    users: Sequence[Sequence[str]] | None = None,
    event_type: str = "purchase",
    media_root: Path | None = None,
) -> NewVectors:
    """Vectors and tokens, seen at `as_of` [us], of `rows` of the contract's table of products or advertisers (`kind`).

    `users` lists who engaged with each, oldest first, by events of `event_type`; users, owners and categories that the
    graph does not know are left out. Row i depends on rows[i] and users[i] alone, to the bit. Time and memory: opening
    the graph and the content of its nodes, then linear in the rows. Raises UsageError for an unknown kind or event
    type, BadDataError for ids that come twice or that the graph has already.
    """
    _check(kind, event_type, rows, users)
    learner, ids = FrozenLearner.open(frozen.learner), [str(row[f"{kind}_id"]) for row in rows]
    newcomers = _newcomers(GraphStore.open(frozen.graph), kind, rows, ids, users or [()] * len(rows))
    store = NewcomerStore(frozen.graph, newcomers, as_of, event_type)
    new = content_of(frozen.features, kind, rows, media_root)
    config = learner.described["config"]
    sampler = NewcomerSampler(store, Budget(**config["item_budget"]))
    nodes = np.arange(len(ids)) + store.first
    times = np.full(len(ids), as_of, np.int64)
    table = _with_content(learner, frozen.features, store, kind, new)
    seed = learner.described["sampling_seed"]
    encoder, table = lent(learner.lending, learner.model.encoder, table)
    parts = (encoder, learner.prototypes, table, sampler, kind, nodes, times, seed)
    vectors = (
        encode_nodes(*parts, blend=learner.blend)[:, 0]
        if ids
        else np.zeros((0, learner.model.encoder.shape.dim), np.float32)
    )
    return NewVectors(ids, vectors, _tokens(frozen, kind, ids, vectors, as_of), new.unread)


def _check(kind: str, event_type: str, rows: Sequence[Row], users: Sequence[Sequence[str]] | None) -> None:
    for given, known in ((kind, WITH_ID), (event_type, EVENT_TYPES)):
        if given not in known:
            raise UsageError(f"unknown {given!r}: {nearest(given, known)}")
    if users is not None and len(users) != len(rows):
        raise UsageError(f"expected a list of users for each of {len(rows)} rows, got {len(users)}")


def _newcomers(
    store: GraphStore, kind: str, rows: Sequence[Row], ids: list[str], users: Sequence[Sequence[str]]
) -> Newcomers:
    twice = {name for name in ids if ids.count(name) > 1} if len(set(ids)) < len(ids) else set()
    if twice:
        raise BadDataError(f"expected each {kind} once, got {sorted(twice)[0]!r} more than once")
    known = np.flatnonzero(store.encode(kind, ids) >= 0)
    if len(known):
        raise BadDataError(
            f"{kind} {ids[known[0]]!r} and {len(known) - 1} more are known to the graph already: "
            "expected new ones only. Ask for their tokens by id, or run the pipeline on the grown log."
        )
    owner = np.full(len(rows), -1, np.int64)
    category = owner.copy()
    if kind == "product":
        owner = store.encode("advertiser", [row.get("advertiser_id") for row in rows])
        category = np.array([_deepest(store, row.get("category")) for row in rows], np.int64)
    found = [store.encode("user", list(own)) for own in users]
    return Newcomers(kind, ids, owner, category, [own[own >= 0] for own in found])


def _deepest(store: GraphStore, path: Sequence[str | None] | None) -> int:
    """The finest category of a path that the graph knows, -1 for none."""
    known = store.encode("category", category_ids([name for name in path or () if name]))
    return int(known[known >= 0][-1]) if (known >= 0).any() else -1


def _with_content(
    learner: FrozenLearner, features: ArtifactRef, store: NewcomerStore, kind: str, new: NewContent
) -> ContentTable:
    """The content of all nodes, that of the newcomers at their end."""
    gated = bool(learner.model.encoder.shape.gate)
    known = {k: learner.ref.table(f"known_{k}.parquet")["entity_id"].combine_chunks() for k in WITH_ID}
    table = open_content(features, store, known, gated)
    found: NDArray[Any] = new.content
    if gated:
        count, modalities, dim = new.parts.shape
        flat = new.parts.reshape(count, modalities * dim)
        found = np.concatenate([flat, new.present], axis=1, dtype=np.float32)
    start = table.place(kind).start + store.first
    table.content.numpy()[start : start + len(found), : found.shape[1]] = found
    return table


def _tokens(frozen: Frozen, kind: str, ids: list[str], vectors: Vectors, as_of: int) -> pa.Table:
    levels = published(frozen.supergraph)
    if not ids:
        return TOKENS.empty_table()
    keys = pa.table(
        {
            "entity_id": pa.array(ids, pa.string()),
            "entity_type": pa.array([kind] * len(ids), pa.string()),
            "as_of": pa.array(np.full(len(ids), as_of, np.int64)),
            "model_version": pa.array([frozen.learner.version("model.safetensors")] * len(ids), pa.string()),
        }
    )
    bags = bags_of(levels, vectors, np.arange(len(ids) + 1))
    return token_table(levels, bags, keys, frozen.supergraph.metrics["vocab_version"])
