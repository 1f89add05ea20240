"""What every method stands on: one set's artifacts, the products known at T0 and their categories, split in halves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data import snapshot
from data.artifacts import ArtifactRef, Store
from data.context import derive_seed
from data.errors import UsageError
from data.progress import Progress
from data.schema import ENTITY_TYPES, to_micros
from data.timegrid import EMBEDDINGS
from flows import pipeline, presets
from flows.config import PipelineConfig, load_config
from graph.store import GraphStore, index_in
from hierarchy.asof import read_as_of
from hierarchy.bags import Vectors
from hierarchy.baselines.emission import Entities, pooled
from hierarchy.level_quality import category_tree
from hierarchy.levels import Level, published

PRESETS = {"completejourney": "demo"}
"""Presets by set, where the names differ."""

STAGES = ("events", "graph", "features", "learner", "embeddings", "supergraph", "tokens")


@dataclass(frozen=True)
class Ground:
    """One set: its artifacts, one for each seed of the learner, and its configuration."""

    name: str
    config: PipelineConfig
    seeds: list[dict[str, ArtifactRef]]

    @property
    def refs(self) -> dict[str, ArtifactRef]:
        """The artifacts of the first seed; events, graph and features are the same in all."""
        return self.seeds[0]

    @cached_property
    def store(self) -> GraphStore:
        """The graph."""
        return GraphStore.open(self.refs["graph"])

    @cached_property
    def levels(self) -> list[Level]:
        """The learner's levels: every method has as many primitives of each, and bags of the same size."""
        return published(self.refs["supergraph"])

    @property
    def sizes(self) -> tuple[int, ...]:
        """Primitives by level."""
        return tuple(len(level.ids) for level in self.levels)

    @property
    def event_type(self) -> str:
        """The events that are to be foreseen, and of which a user is made where a method has content only."""
        return self.config.evaluation.event_type

    @cached_property
    def clock(self) -> bool:
        """Whether times mean anything."""
        return bool(self.refs["events"].metrics["time_kind"] == "clock")

    @cached_property
    def cuts(self) -> tuple[int, int, int]:
        """T0, T1 and T2 [us]."""
        cuts = self.config.cuts
        return to_micros(cuts.t0), to_micros(cuts.t1), to_micros(cuts.t2)

    @cached_property
    def dates(self) -> tuple[int, int, int]:
        """The dates of the embeddings [us] that are the last at or before T0, T1 and T2."""
        known = self.refs["embeddings"].table(EMBEDDINGS, ["as_of"])["as_of"].to_numpy()
        t0, t1, t2 = (int(known[known <= cut].max()) for cut in self.cuts)
        return t0, t1, t2

    @cached_property
    def fitted(self) -> int:
        """Products known at T0: the first so many by internal id, since ids are given as products become known."""
        return int(np.searchsorted(self.store.known_at("product"), self.cuts[0], side="right"))

    @cached_property
    def content(self) -> Vectors:
        """Content of the products (products, d) by internal id, zeros where there is none."""
        features = self.refs["features"]
        place = self.store.encode("product", features.table("entities_product.parquet", ["entity_id"])["entity_id"])
        vectors = features.array("content_product.npy")
        found = np.zeros((self.store.num_nodes["product"], vectors.shape[1]), np.float32)
        found[place[place >= 0]] = vectors[place >= 0]
        return found

    @cached_property
    def categories(self) -> list[NDArray[np.int64]]:
        """By level the category of each product known at T0 (fitted,) at the depth nearest in number, -1 unknown."""
        table = self.refs["features"].table("entities_product.parquet", ["entity_id", "category"]).combine_chunks()
        tree = category_tree(table["category"].to_pylist())
        place = index_in(self.store.entity_ids("product")[: self.fitted], table["entity_id"].combine_chunks())
        return [np.where(place >= 0, tree.depths[tree.matching(k)][place], -1) for k in self.sizes]

    @cached_property
    def chooses(self) -> NDArray[np.bool_]:
        """Products (products,) of the half that settings are chosen on, by a hash of their id."""
        names = self.store.entity_ids("product").to_pylist()
        return np.array([derive_seed(0, "half", name) % 2 == 0 for name in names], bool)

    @property
    def asked(self) -> pa.Array:
        """Ids of the other half, that figures are reported on."""
        return self.store.entity_ids("product").filter(pa.array(~self.chooses))

    @cached_property
    def content_entities(self) -> Entities:
        """Everybody by content, users and advertisers as the mean of their products."""
        return pooled(self.store, self.content, self.event_type, sorted(set(self.dates)))

    def learned_entities(self, refs: Mapping[str, ArtifactRef]) -> Entities:
        """Everybody as a learner made them, at the same dates."""
        embeddings = refs["embeddings"]
        return {date: {kind: read_as_of(embeddings, kind, date) for kind in ENTITY_TYPES} for date in set(self.dates)}

    @property
    def shape(self) -> str:
        """The set in words."""
        sizes = "/".join(map(str, self.sizes))
        return f"{self.name}, {self.store.num_nodes['product']:,} products, {self.fitted:,} at T0, levels {sizes}"


def from_stores(folders: list[Path]) -> list[Ground]:
    """The sets whose published snapshots lie in `folders`; folders of one set are its seeds."""
    found: dict[str, list[dict[str, ArtifactRef]]] = {}
    for folder in folders:
        store = Store(folder)
        published_one = snapshot.load(store)
        refs = {stage: published_one.ref(store, stage) for stage in STAGES}
        found.setdefault(str(refs["events"].metrics["name"]), []).append(refs)
    return [Ground(name, _config(name, seeds[0]), seeds) for name, seeds in found.items()]


def made(name: str, seeds: int, folder: Path) -> Ground:
    """The set `name` run up to its tokens with `seeds` seeds, in a store each below `folder`; finished ones are
    reused."""
    refs = []
    for seed in range(seeds):
        config = load_config(presets.named(PRESETS.get(name, name)), None, {"seed": seed})
        refs.append(pipeline.direct(config, Store(folder / f"{name}-{seed}"), Progress(), until="tokens").refs)
    return Ground(name, _config(name, refs[0]), refs)


def _config(name: str, refs: dict[str, ArtifactRef]) -> PipelineConfig:
    """The set's configuration; raises UsageError when its store was made with another T0."""
    config = load_config(presets.named(PRESETS.get(name, name)), None, {})
    given = refs["learner"].json("learner.json")["config"]["t0"]
    if given != config.learner.result_fields()["t0"]:
        raise UsageError(f"{name}: expected a store made with t0 {config.cuts.t0}, got one with {given}")
    return config
