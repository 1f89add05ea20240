"""Stage evaluation: does the representation find what people buy next, and do its levels say something?

Retrieval by Recall@20 with full ranking on two windows after T0. The settings of every method are chosen on the
validation window, the test window is looked at once, and the learner and the baselines see exactly the same past.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy import sparse

from data.artifacts import ArtifactRef, OutputDir
from data.context import Metrics, RunContext, StageConfig, UtcTime, execution
from data.schema import MICROS_PER_DAY, to_micros
from data.timegrid import EMBEDDINGS
from graph.store import GraphStore
from hierarchy.asof import read_as_of
from hierarchy.bags import Vectors
from hierarchy.baselines.content import ContentOnly
from hierarchy.baselines.item_knn import ItemKnn
from hierarchy.baselines.own_frequency import OwnFrequency
from hierarchy.baselines.popularity import Popularity
from hierarchy.inference import FrozenLearner
from hierarchy.level_quality import level_quality
from hierarchy.purchases import History, bought_between, history_at, products_with_events
from hierarchy.recall import Question, Scorer, recall_at

_CLAIM = 500  # with fewer positives than this a figure on cold products would carry no claim
_WARM, _COLD = ("all", "new"), ("cold",)

Setting = dict[str, Any]
"""Keyword arguments of a baseline."""


class Config(StageConfig):
    """What is measured, and the settings each baseline chooses from on the validation window."""

    t1: UtcTime = Field(description="Start of the validation window; embeddings are those of the last date up to it.")
    t2: UtcTime = Field(description="Start of the test window, end of the validation window.")
    event_type: str = Field(default="purchase", description="Events that are to be foreseen.")
    test_days: int = Field(default=28, ge=1, description="Days of the test window, at most.")
    windows: tuple[float | None, ...] = Field(
        default=(None, 28.0, 14.0, 7.0), min_length=1, description="Popularity: days that count; None is all time."
    )
    half_lives: tuple[float | None, ...] = Field(
        default=(None, 120.0, 60.0),
        min_length=1,
        description="Own frequency, and the learner's repeats: days until half weight; None is never.",
    )
    knn: tuple[tuple[float, float, float, float], ...] = Field(
        default=((0.5, 0.3, 7.0, 60.0), (0.5, 0.3, 28.0, 60.0), (0.5, 0.5, 7.0, 60.0), (0.5, 0.5, 28.0, 120.0)),
        min_length=1,
        description="Item-kNN: (source exponent, target exponent, days of an occasion, days until half weight).",
    )
    popularity: tuple[float, ...] = Field(
        default=(1.0, 2.0, 4.0), min_length=1, description="Learner: factors on the popularity scale it learned."
    )
    chunk: int = execution(128, "Users scored at once; memory is a few times this x products x 4 bytes.", ge=1)


class Learned:
    """The learner's scores: the best cosine of a user's heads, plus popularity and repeats in units of cosine."""

    def __init__(
        self,
        users: Vectors,
        products: Vectors,
        popularity: Vectors,
        history: sparse.csr_array | None = None,
        repeats: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        """`users` (users, heads, d), `products` (products, d), `popularity` (products,), by internal id.

        What a user had by `history`, events (users, products), gets repeats[0] + repeats[1] * ln(its share) more.
        """
        self.users, self.products, self.popularity, self.repeats = users, products, popularity, repeats
        self.share = None if history is None or not any(repeats) else _shares(history)

    def scores(self, users: NDArray[np.int64]) -> Vectors:
        """Scores (B, products) of users (B,)."""
        best = self.users[users, 0] @ self.products.T
        for head in range(1, self.users.shape[1]):
            np.maximum(best, self.users[users, head] @ self.products.T, out=best)
        best += self.popularity
        if self.share is not None:
            had = self.share[users].tocoo()
            best[had.row, had.col] += np.float32(self.repeats[0]) + np.float32(self.repeats[1]) * np.log(had.data)
        return np.asarray(best)

    def with_popularity(self, factor: float) -> Learned:
        """The same learner with its popularity scale times `factor`: what is new to a user needs more of it."""
        changed = copy(self)
        changed.popularity = self.popularity * np.float32(factor)
        return changed

    def with_vectors(self, users: Vectors, products: Vectors) -> Learned:
        """The same popularity and repeats for other `users` (users, heads, d) and `products` (products, d)."""
        changed = copy(self)
        changed.users, changed.products = users, products
        return changed

    def with_history(self, history: sparse.csr_array) -> Learned:
        """The same learner with repeats told from `history`, events (users, products), which may forget."""
        changed = copy(self)
        changed.share = _shares(history) if any(self.repeats) else None
        return changed

    def with_products(self, products: Vectors, popularity: Vectors) -> Learned:
        """The same users, asked about `products` (products, d) and their `popularity` (products,) of another date."""
        changed = copy(self)
        changed.products, changed.popularity = products, popularity
        return changed


def _shares(history: sparse.csr_array) -> sparse.csr_array:
    """Rows of `history` divided by their sums."""
    total = np.repeat(np.asarray(history.sum(axis=1)).ravel(), np.diff(history.indptr))
    return sparse.csr_array(((history.data / total).astype(np.float32), history.indices, history.indptr), history.shape)


class Window(NamedTuple):
    """One stretch of time: what was known at its start, and what is asked.

    `learned` has the learner's scores, `content` float32 (products, D) content vectors; users int64 (u,) are those with
    an embedding and something to find.
    """

    history: History
    learned: Learned
    content: Vectors
    questions: list[Question]
    users: NDArray[np.int64]


class Method(NamedTuple):
    """A retrieval method: its name, the settings it chooses from, how it is made for a window, what it is asked."""

    name: str
    settings: list[Setting]
    make: Callable[[Window, Setting], Scorer]
    protocols: tuple[str, ...]


def run(config: Config, inputs: Mapping[str, ArtifactRef], out: OutputDir, ctx: RunContext) -> Metrics:
    """Write retrieval.json (method, protocol, split, recall@20, users, positives, setting) and levels.json.

    Protocols: "all" counts repeat purchases; "new" only products the user never bought, the others masked; "cold" only
    products that no event named before, ranked among themselves. Only products known when the window starts are ranked
    and counted, and only users with an embedding. Time: users x products for each setting; memory: the purchases, the
    content and a chunk of scores.
    """
    store = GraphStore.open(inputs["graph"])
    t1, t2 = to_micros(config.t1), to_micros(config.t2)
    methods = _methods(config)
    plan = {method.name: dict.fromkeys(range(len(method.settings)), method.protocols) for method in methods}
    rows = []
    for split, start, end in (("validation", t1, t2), ("test", t2, t2 + config.test_days * MICROS_PER_DAY)):
        window = _window(config.event_type, store, inputs, start, end)
        with ctx.progress.step(f"retrieval, {split}", len(methods), "methods") as step:
            for method in methods:
                best = _measure(method, plan[method.name], window, config.chunk)
                plan[method.name] = _chosen(best)
                for protocol, (place, row) in best.items():
                    named = {"method": method.name, "protocol": protocol, "split": split}
                    rows.append({**named, **row, "setting": method.settings[place]})
                step.advance()
    levels = level_quality(inputs["supergraph"], inputs["tokens"], inputs["features"])
    out.write_json("retrieval.json", rows)
    out.write_json("levels.json", levels)
    return {"retrieval": rows, "levels": levels}


def _methods(config: Config) -> list[Method]:
    windows = [{"window": days} for days in config.windows]
    half_lives = [{"half_life": days} for days in config.half_lives]
    knn = [dict(zip(("source", "target", "window", "half_life"), numbers, strict=True)) for numbers in config.knn]
    learner = [{"factor": factor, "half_life": days} for factor in config.popularity for days in config.half_lives]
    return [
        Method("popularity", windows, lambda known, setting: Popularity(known.history, **setting), _WARM),
        Method("own frequency", half_lives, lambda known, setting: OwnFrequency(known.history, **setting), _WARM),
        Method("item-kNN", knn, lambda known, setting: ItemKnn(known.history, **setting), _WARM),
        Method("content only", [{}], lambda known, setting: ContentOnly(known.history, known.content), _WARM + _COLD),
        Method("learner", learner, lambda known, setting: _learner(known, **setting), _WARM + _COLD),
    ]


def _learner(known: Window, factor: float, half_life: float | None) -> Learned:
    return known.learned.with_popularity(factor).with_history(known.history.matrix(half_life))


def _window(event_type: str, store: GraphStore, inputs: Mapping[str, ArtifactRef], start: int, end: int) -> Window:
    embeddings = inputs["embeddings"]
    dates = embeddings.table(EMBEDDINGS, ["as_of"])["as_of"].to_numpy()
    as_of = int(dates[dates <= start].max())
    history = history_at(store, event_type, as_of)
    people, products = read_as_of(embeddings, "user", as_of), read_as_of(embeddings, "product", as_of)
    person, product = store.encode("user", people.entity_id), store.encode("product", products.entity_id)
    learned = Learned(
        _placed(people.vectors, person, history.num_users),
        _placed(products.vectors[:, 0], product, history.num_products),
        _placed(products.popularity, product, history.num_products),
        history.matrix(),
        FrozenLearner.open(inputs["learner"]).model.link.repeats_in_cosine(),
    )
    targets = bought_between(store, event_type, start, end)
    known = store.known_at("product") <= as_of
    cold = known & ~products_with_events(store, as_of)
    questions = [
        Question("all", targets, known),
        Question("new", targets, known, barred=history.matrix()),
        Question("cold", targets, cold),
    ]
    users = np.sort(person[np.diff(targets.indptr)[person] > 0])
    return Window(history, learned, _content(inputs["features"], store), questions, users)


def _placed(values: NDArray[Any], rows: NDArray[np.int64], count: int) -> NDArray[Any]:
    """`values` at their internal ids, zeros elsewhere."""
    placed = np.zeros((count, *values.shape[1:]), values.dtype)
    placed[rows] = values
    return placed


def _content(features: ArtifactRef, store: GraphStore) -> Vectors:
    ids = features.table("entities_product.parquet", ["entity_id"])["entity_id"]
    place = store.encode("product", ids)
    return _placed(features.array("content_product.npy")[place >= 0], place[place >= 0], store.num_nodes["product"])


def _measure(
    method: Method, plan: Mapping[int, tuple[str, ...]], window: Window, chunk: int
) -> dict[str, tuple[int, dict[str, Any]]]:
    """For each protocol the best setting of those planned, by its place, and what it reached."""
    best: dict[str, tuple[int, dict[str, Any]]] = {}
    for place, protocols in plan.items():
        questions = [question for question in window.questions if question.name in protocols]
        found = recall_at(method.make(window, method.settings[place]), questions, window.users, chunk=chunk)
        for question, (recall, positives) in zip(questions, found, strict=True):
            row = _figures(question.name, recall, positives)
            known = best.get(question.name)
            if known is None or (row["recall@20"] or 0.0) > (known[1]["recall@20"] or 0.0):
                best[question.name] = place, row
    return {name: best[name] for name in method.protocols if name in best}


def _figures(protocol: str, recall: NDArray[np.float64], positives: int) -> dict[str, Any]:
    asked = recall[~np.isnan(recall)]
    enough = positives >= _CLAIM if protocol == "cold" else len(asked) > 0
    row: dict[str, Any] = {"recall@20": round(float(asked.mean()), 5) if enough else None}
    row |= {"users": len(asked), "positives": positives}
    return row if enough else row | {"note": f"too few: {positives} positives"}


def _chosen(best: Mapping[str, tuple[int, dict[str, Any]]]) -> dict[int, tuple[str, ...]]:
    """The places of the chosen settings, each with the protocols it was chosen for."""
    chosen: dict[int, tuple[str, ...]] = {}
    for protocol, (place, _) in best.items():
        chosen[place] = (*chosen.get(place, ()), protocol)
    return chosen
