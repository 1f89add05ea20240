"""From a division of products to artifacts: what stands in for the stages learner and embeddings, so that the ordinary
stages supergraph and tokens describe any method's primitives and make its tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from scipy import sparse

from data.artifacts import ArtifactRef, OutputDir, Store
from data.context import Metrics, RunContext, StageConfig
from data.schema import ENTITY_TYPES, embeddings_schema
from data.timegrid import EMBEDDINGS, date_file
from graph.store import OWNED_BY, GraphStore
from hierarchy import supergraph, tokens
from hierarchy.asof import AsOfVectors
from hierarchy.bags import Vectors
from hierarchy.kmeans import unit
from hierarchy.purchases import history_at

Entities = Mapping[int, Mapping[str, AsOfVectors]]
"""Vectors of every entity at each date [us], by type."""


def pooled(store: GraphStore, products: Vectors, event_type: str, dates: Sequence[int]) -> Entities:
    """Entities of which products (num_products, d), by internal id, are the only content: a user is the mean of the
    products of their events of `event_type` by then, an advertiser that of its products; who has none is left out.

    Popularity is the logarithm of a product's events, for the reader to scale.
    """
    return {date: _pooled_at(store, unit(products), event_type, date) for date in dates}


def mapped(entities: Entities, image: Callable[[Vectors], Vectors]) -> Entities:
    """The same entities with the vectors of `image`, which takes (n, d) to (n, m)."""

    def moved(own: AsOfVectors) -> AsOfVectors:
        count, heads, dim = own.vectors.shape
        return replace(own, vectors=image(own.vectors.reshape(-1, dim)).reshape(count, heads, -1))

    return {date: {kind: moved(own) for kind, own in kinds.items()} for date, kinds in entities.items()}


def emit(
    store: Store,
    key: str,
    inputs: Mapping[str, ArtifactRef],
    entities: Entities,
    levels: Sequence[tuple[Vectors, int]],
    config: supergraph.Config,
) -> dict[str, ArtifactRef]:
    """Publish learner, embeddings, supergraph and tokens under `key`; `inputs` holds events, graph and features.

    `levels` are unit vectors (k, d) and the bag size of each level, coarse to fine. The learner has primitives only.
    """
    refs = dict(inputs)
    refs["learner"] = _publish(store, "learner", key, lambda out: _learner(levels, out))
    refs["embeddings"] = _publish(store, "embeddings", key, lambda out: _embeddings(entities, key, out))
    stages: list[tuple[str, ModuleType, StageConfig]] = [
        ("supergraph", supergraph, config),
        ("tokens", tokens, tokens.Config()),
    ]
    for stage, module, own in stages:
        refs[stage] = _publish(store, stage, key, _stage(module, own, dict(refs)))
    return refs


def _stage(module: ModuleType, config: StageConfig, refs: Mapping[str, ArtifactRef]) -> Callable[[OutputDir], Metrics]:
    def run(out: OutputDir) -> Metrics:
        metrics: Metrics = module.run(config, refs, out, RunContext(threads=1))
        return metrics

    return run


def _publish(store: Store, stage: str, key: str, write: Callable[[OutputDir], Metrics]) -> ArtifactRef:
    with store.publish(stage, key, {"inputs": {}, "config": {}, "seed": 0}) as (out, extras):
        extras["metrics"] = write(out)
    return store.get(stage, key)


def _learner(levels: Sequence[tuple[Vectors, int]], out: OutputDir) -> Metrics:
    tensors = {f"prototypes.vectors_{place}": torch.from_numpy(vectors) for place, (vectors, _) in enumerate(levels)}
    out.write_tensors("model.safetensors", tensors)
    config = {"levels": [{"k": len(vectors), "top": top} for vectors, top in levels]}
    out.write_json("learner.json", {"config": config})
    return {}


def _embeddings(entities: Entities, version: str, out: OutputDir) -> Metrics:
    dim = next(own.vectors.shape[2] for kinds in entities.values() for own in kinds.values() if len(own.vectors))
    schema = embeddings_schema(dim)

    rows = 0
    for date in sorted(entities):
        tables = [_rows(entities[date][kind], kind, date, version, schema) for kind in sorted(ENTITY_TYPES)]
        rows += out.write_batches(date_file(EMBEDDINGS, date), schema, tables)
    return {"rows": rows, "first_as_of": min(entities), "last_as_of": max(entities), "model_version": version}


def _rows(own: AsOfVectors, kind: str, date: int, version: str, schema: pa.Schema) -> pa.Table:
    count, heads, dim = own.vectors.shape
    each = np.repeat(np.arange(count), heads)
    columns: list[Any] = [
        own.entity_id.take(pa.array(each)),
        pa.repeat(kind, len(each)),
        pa.array(np.tile(np.arange(heads, dtype=np.int32), count)),
        pa.FixedSizeListArray.from_arrays(pa.array(own.vectors.reshape(-1)), dim),
        pa.array(own.popularity[each]),
        pa.array(own.degree[each]),
        pa.repeat(version, len(each)),
        pa.array(np.full(len(each), date, np.int64)),
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _pooled_at(store: GraphStore, products: Vectors, event_type: str, date: int) -> dict[str, AsOfVectors]:
    history = history_at(store, event_type, date)
    known = {kind: store.known_at(kind) <= date for kind in ENTITY_TYPES}
    bought = history.matrix()
    owned = _owned(store, date)
    events = {"user": bought.sum(axis=1), "product": bought.sum(axis=0), "advertiser": owned @ bought.sum(axis=0)}
    vectors = {"user": unit(bought @ products), "product": products, "advertiser": unit(owned @ products)}
    found = {}
    for kind in ENTITY_TYPES:
        there = known[kind] & (vectors[kind].any(axis=1) | (kind == "product"))
        found[kind] = _ordered(store, kind, np.flatnonzero(there), vectors[kind], np.asarray(events[kind]), date)
    return found


def _ordered(
    store: GraphStore, kind: str, nodes: NDArray[np.int64], vectors: Vectors, events: NDArray[Any], date: int
) -> AsOfVectors:
    """The nodes in order of their external id."""
    names = np.asarray(store.entity_ids(kind).take(pa.array(nodes)).to_pylist(), dtype=object)
    nodes = nodes[np.argsort(names, kind="stable")]
    degree = events[nodes].round().astype(np.int64)
    popularity = (np.log1p(degree) if kind == "product" else np.zeros(len(nodes))).astype(np.float32)
    ids = store.entity_ids(kind).take(pa.array(nodes))
    return AsOfVectors(ids, vectors[nodes][:, None], popularity, degree, np.full(len(nodes), date))


def _owned(store: GraphStore, date: int) -> sparse.csr_array:
    """1 where a product known at `date` belongs to an advertiser, float32 (advertisers, products)."""
    links = store.csr(OWNED_BY)
    product = np.repeat(np.arange(len(links.rowptr) - 1), np.diff(links.rowptr))
    there = np.asarray(links.visible_from) <= date
    shape = store.num_nodes["advertiser"], store.num_nodes["product"]
    ones = np.ones(int(there.sum()), np.float32)
    return sparse.csr_array((ones, (links.col[there], product[there])), shape=shape)
