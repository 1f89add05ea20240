"""Stage supergraph: the learned primitives as a published vocabulary, with words, masses and the flow between them.

Everything rests on what was visible before T0 only, so later events never change a vocabulary. It also fixes how an
entity becomes tokens: how many primitives are kept at each level, and how sharp the softmax over them is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field

from data.artifacts import ArtifactRef, OutputDir
from data.categories import SEPARATOR
from data.context import Metrics, RunContext, StageConfig, UtcTime
from data.errors import UsageError
from data.schema import ENTITY_TYPES, PRIMITIVES, to_micros
from graph.sampler import TemporalSampler
from graph.store import GraphStore, index_in
from hierarchy.alignment import Config as Alignment
from hierarchy.alignment import Named, name_again, name_first
from hierarchy.asof import AsOfVectors, read_as_of
from hierarchy.bags import Bags, Vectors, cosines, fit_tau
from hierarchy.levels import Level, are_unions, bags_of_all, learned
from hierarchy.past import of_vocabulary
from hierarchy.public_ids import IDS
from hierarchy.relations import flow_links, parent_links
from hierarchy.vocabulary import Catalogue, Describer, membership

_PROBES = 1024  # entities of a type by which a temperature is set


class Config(StageConfig):
    """How primitives become words, tokens and links."""

    t0: UtcTime = Field(description="Only what was visible before this time shapes the vocabulary.")
    spread: float = Field(
        default=0.5, ge=0, le=1, description="Primitives a bag spreads over, in effect: 0 is one, 1 all that are kept."
    )
    tau: tuple[float, ...] = Field(default=(), description="Softmax temperature by level; empty: found from `spread`.")
    flows: tuple[str, ...] = Field(
        default=("click", "cart", "purchase"), description="Event types along which interest flows between primitives."
    )
    window_days: int = Field(
        default=7, ge=1, description="Days within which a user's events belong together or follow one another."
    )
    half_life_days: float = Field(
        default=90.0, ge=0, description="Age [days] at which flow counts half; 0: all alike. No effect without a clock."
    )
    reach: int = Field(default=16, ge=1, description="Earlier moments of a user that a directed flow looks back on.")
    neighbours: int = Field(default=8, ge=1, description="Links kept of each primitive and relation.")
    parents: int = Field(default=3, ge=1, description="Soft links kept from each primitive to the level above.")
    terms: int = Field(default=8, ge=1, description="Telling terms kept of each primitive.")
    products: int = Field(default=8, ge=1, description="Typical products kept of each primitive.")
    alignment: Alignment = Field(
        default=Alignment(), description="How public ids outlive a retrain; no effect without an earlier one."
    )


def seen(config: Config, inputs: Mapping[str, ArtifactRef]) -> dict[str, str]:
    """What stands for the inputs in the key: their past at t0, which is all that is looked at."""
    return of_vocabulary(inputs, to_micros(config.t0))


def run(config: Config, inputs: Mapping[str, ArtifactRef], out: OutputDir, ctx: RunContext) -> Metrics:
    """Write primitives.parquet, primitive_edges.parquet and levels.json (level, k, top, tau: how tokens are made).

    Rows of primitives.parquet are in the learner's order within a level. With inputs `previous` (an earlier
    supergraph) and `previous_embeddings` primitives keep the public ids of their counterparts there; id_map.parquet
    tells what became of each id, churn.json what that does to bags, ids.json what the next vocabulary must know.

    Time: entities x primitives for the bags, one pass over the events for the flow (hierarchy.flow). Memory: the
    embeddings at T0, the bags of all entities, and 4 bytes x products x primitives of the finest level.
    """
    before = to_micros(config.t0)
    entities = {kind: read_as_of(inputs["embeddings"], kind, before) for kind in ENTITY_TYPES}
    named = _named(config, inputs, _levels(config, inputs["learner"], entities), entities)
    levels = named.levels
    products = entities["product"]
    found = bags_of_all(levels, products.vectors)
    store = GraphStore.open(inputs["graph"])
    catalogue = _catalogue(inputs["events"], store, products, before)
    describer = Describer(catalogue, config.terms, config.products)
    tables = []
    with ctx.progress.step("describe primitives", len(levels), "levels") as step:
        for index, level in enumerate(levels):
            tables.append(_primitives(level, levels[index - 1] if index else None, found[index], describer))
            step.advance()
    described = [
        {"level": own.level, "k": len(own.ids), "top": own.top, "tau": own.tau, "united": own.united is not None}
        for own in levels
    ]
    primitives = _versioned(pa.concat_tables(tables).combine_chunks(), described)
    links = [parent_links(levels, config.parents), flow_links(config, store, levels, entities, found)]
    edges = pa.concat_tables(links)
    out.write_table("primitives.parquet", primitives)
    out.write_table("primitive_edges.parquet", edges)
    out.write_json("levels.json", described)
    out.write_table("id_map.parquet", named.ledger.id_map())
    out.write_json("churn.json", named.churn)
    out.write_json(IDS, named.ledger.as_json())
    return {"t0": before, **_metrics(primitives, edges, described, found), "churn": named.churn}


def _named(
    config: Config, inputs: Mapping[str, ArtifactRef], levels: list[Level], entities: Mapping[str, AsOfVectors]
) -> Named:
    """The levels under public ids."""
    if "previous" not in inputs:
        return name_first(levels)
    earlier = inputs["previous"], inputs["previous_embeddings"]
    return name_again(config.alignment, levels, *earlier, entities, to_micros(config.t0))


def _levels(config: Config, learner: ArtifactRef, entities: Mapping[str, AsOfVectors]) -> list[Level]:
    """The learner's levels, still without ids."""
    found = learned(learner)
    if config.tau and len(config.tau) != len(found):
        raise UsageError(f"supergraph.tau: expected one number for each of {len(found)} levels, got {config.tau}")
    probes, groups = _probes(entities)
    levels = []
    for index, (vectors, top) in enumerate(found):
        perplexity = 1 + config.spread * (min(top, len(vectors)) - 1)
        tau = config.tau[index] if config.tau else fit_tau(cosines(probes, vectors), groups, perplexity)
        levels.append(Level(index + 1, pa.nulls(len(vectors), pa.string()), vectors, top, tau))
    if are_unions(learner):
        for place, finer in enumerate(levels[1:]):
            levels[place] = levels[place]._replace(united=_parents(finer, levels[place]))
    return levels


def _probes(entities: Mapping[str, AsOfVectors]) -> tuple[Vectors, NDArray[np.int64]]:
    """Vectors of up to 1,024 entities of each type, spread evenly over their ids, and the type of each."""
    parts = [found.vectors[:: max(1, len(found.vectors) // _PROBES), 0][:_PROBES] for found in entities.values()]
    known = [part for part in parts if len(part)]
    return np.concatenate(known), np.repeat(np.arange(len(known)), [len(part) for part in known])


def _catalogue(events: ArtifactRef, store: GraphStore, products: AsOfVectors, before: int) -> Catalogue:
    """What is known of the products at `before` [us]."""
    rows = events.table("products.parquet", ["product_id", "title", "category"])
    rows = rows.take(pa.array(index_in(products.entity_id, rows["product_id"].combine_chunks())))
    nodes = store.encode("product", products.entity_id)
    engagement = TemporalSampler(store).degree("product", nodes, np.full(len(nodes), before)).numpy()
    paths = [SEPARATOR.join(path) if path else None for path in rows["category"].to_pylist()]
    return Catalogue(products.entity_id.to_pylist(), rows["title"].to_pylist(), paths, engagement.astype(np.float64))


def _primitives(level: Level, above: Level | None, found: Bags, describer: Describer) -> pa.Table:
    words = describer.describe(found, len(level.ids))
    parents = pa.nulls(len(words), pa.string())
    if above is not None:
        place = _parents(level, above) if above.united is None else above.united
        parents = above.ids.take(pa.array(place))
    columns = {
        "vocab_version": [""] * len(words),
        "level": [level.level] * len(words),
        "primitive_id": level.ids,
        "parent_id": parents,
        "vector": list(level.vectors),
        "mass": _mass(found, len(words), describer.catalogue.engagement),
        "label": [word.label for word in words],
        "top_terms": [word.top_terms for word in words],
        "top_products": [word.top_products for word in words],
    }
    return pa.table([pa.array(columns[field.name], field.type) for field in PRIMITIVES], schema=PRIMITIVES)


def _parents(level: Level, above: Level) -> NDArray[np.int64]:
    return np.asarray(cosines(level.vectors, above.vectors).argmax(axis=1))


def _mass(found: Bags, k: int, engagement: NDArray[np.float64]) -> NDArray[np.float32]:
    """Share of all engagement, (k,), that falls on each primitive through the bags of the products engaged with."""
    weight = engagement if engagement.any() else np.ones_like(engagement)
    mass = np.asarray(membership(found, k).T @ weight)
    return np.asarray(mass / max(mass.sum(), 1e-30), np.float32)


def _versioned(primitives: pa.Table, levels: list[dict[str, Any]]) -> pa.Table:
    """The table under a version: a hash of all that it says and of how tokens are made, not of how it came about."""
    said = primitives.drop_columns(["vocab_version", "vector"]).to_pylist()
    digest = hashlib.sha256(json.dumps([said, levels], sort_keys=True).encode())
    digest.update(primitives["vector"].combine_chunks().flatten().to_numpy().tobytes())
    version = pa.array([digest.hexdigest()[:16]] * len(primitives))
    return primitives.set_column(0, PRIMITIVES.field("vocab_version"), version)


def _metrics(primitives: pa.Table, edges: pa.Table, levels: list[dict[str, Any]], found: Sequence[Bags]) -> Metrics:
    shapes = []
    for entry, part in zip(levels, found, strict=True):
        share = np.bincount(part.primitive[:, 0], minlength=entry["k"]) / max(len(part.primitive), 1)
        used = share[share > 0]
        perplexity = float(np.exp(-(used * np.log(used)).sum()))
        shapes.append(entry | {"active_share": round(len(used) / len(share), 4), "perplexity": round(perplexity, 2)})
    counts = {entry["values"]: entry["counts"] for entry in pc.value_counts(edges["relation"]).to_pylist()}
    return {"vocab_version": primitives["vocab_version"][0].as_py(), "levels": shapes, "edges": counts}
