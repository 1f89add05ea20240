"""The hierarchies that are compared: where each lives, what its settings may be, and how it is fitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from data.artifacts import ArtifactRef
from data.context import derive_seed
from hierarchy.bags import Vectors
from hierarchy.baselines.division import Division, LinearMap, fit_map
from hierarchy.baselines.leiden import Leiden, co_engagement_graph
from hierarchy.baselines.rq_kmeans import RqKmeans
from hierarchy.baselines.rq_vae import RqVae, Settings
from hierarchy.baselines.tree_kmeans import TreeKmeans
from hierarchy.purchases import history_at
from tests.benchmarks.hierarchy_levels.ground import Ground

Setting = dict[str, Any]


class Fitted(NamedTuple):
    """A division, and the map that takes a vector of the method's space to what it was fitted on."""

    division: Division
    image: LinearMap


@dataclass(frozen=True)
class Method:
    """A baseline: `space` is whose vectors it divides, "content" or "learner"; `options` are the values of each
    setting, the first being the plain one; `fit` takes ground, vectors (products known at T0, d), setting and seed."""

    name: str
    space: str
    options: Mapping[str, Sequence[Any]]
    fit: Callable[[Ground, Vectors, Setting, int], Fitted]

    def draws(self, count: int, seed: int = 0) -> list[Setting]:
        """`count` settings, the plain one first, then others at random; all there are if they are fewer."""
        rng = np.random.default_rng(derive_seed(seed, "draws", self.name))
        found = [{name: values[0] for name, values in self.options.items()}]
        total = int(np.prod([len(values) for values in self.options.values()]))
        while len(found) < min(count, total):
            drawn = {name: values[int(rng.integers(len(values)))] for name, values in self.options.items()}
            if drawn not in found:
                found.append(drawn)
        return found


def vectors_of(method: Method, ground: Ground, refs: Mapping[str, ArtifactRef]) -> Vectors:
    """What the method is fitted on: vectors of the products known at T0, by internal id (fitted, d)."""
    if method.space == "content":
        return ground.content[: ground.fitted]
    own = ground.learned_entities(refs)[ground.dates[0]]["product"]
    place = ground.store.encode("product", own.entity_id)
    found = np.zeros((ground.fitted, own.vectors.shape[2]), np.float32)
    found[place[place < ground.fitted]] = own.vectors[place < ground.fitted, 0]
    return found


def _tree(ground: Ground, vectors: Vectors, setting: Setting, seed: int) -> Fitted:
    image = fit_map(vectors, setting["dims"], setting["power"])
    return Fitted(TreeKmeans(image(vectors), ground.sizes, seed, setting["restarts"]), image)


def _rq(ground: Ground, vectors: Vectors, setting: Setting, seed: int) -> Fitted:
    image = fit_map(vectors, setting["dims"], setting["power"])
    return Fitted(RqKmeans(image(vectors), ground.sizes, seed, setting["restarts"]), image)


def _vae(ground: Ground, vectors: Vectors, setting: Setting, seed: int) -> Fitted:
    image = fit_map(vectors, vectors.shape[1], setting["power"])
    rest = {name: value for name, value in setting.items() if name != "power"}
    return Fitted(RqVae(image(vectors), ground.sizes, seed, Settings(**rest)), image)


def _leiden(ground: Ground, vectors: Vectors, setting: Setting, seed: int) -> Fitted:
    history = history_at(ground.store, ground.event_type, ground.cuts[0])
    graph = co_engagement_graph(history, **setting)[: len(vectors)][:, : len(vectors)]
    image = fit_map(vectors, vectors.shape[1], 0.0)
    return Fitted(Leiden(graph, image(vectors), ground.sizes, seed), image)


_MAPS = {"dims": (1024, 48, 32, 24, 16), "power": (0.0, -0.5, -0.25, 0.25, 0.5, 1.0), "restarts": (1, 3)}
_VAE = {
    "power": (0.0, -0.5, 0.5),
    "hidden": (128, 64, 256),
    "code": (32, 16, 64),
    "commitment": (0.25, 0.1, 1.0),
    "lr": (2e-3, 5e-4, 5e-3),
    "steps": (400, 1000),
}
_LEIDEN = {"window": (7.0, 1.0, 28.0, 1e6), "power": (0.5, 0.0, 0.25, 0.75, 1.0), "neighbours": (20, 10, 40)}

METHODS = (
    Method("hierarchical k-means, content", "content", _MAPS, _tree),
    Method("hierarchical k-means, learner's vectors", "learner", _MAPS, _tree),
    Method("RQ-k-means, content", "content", _MAPS, _rq),
    Method("RQ-VAE, content", "content", _VAE, _vae),
    Method("Leiden, co-engagement", "content", _LEIDEN, _leiden),
)
LEARNER, LEIDEN = "learner", METHODS[-1].name
NAMES = (LEARNER, *(method.name for method in METHODS))
