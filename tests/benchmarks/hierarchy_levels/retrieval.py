"""How much of the vectors' Recall@100 tokens alone reach, and tokens that only propose, at a tenth of the products."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data.artifacts import ArtifactRef
from data.schema import MICROS_PER_DAY
from hierarchy.asof import AsOfVectors
from hierarchy.bags import Vectors
from hierarchy.baselines.emission import Entities
from hierarchy.evaluate import Learned
from hierarchy.levels import Level, published
from hierarchy.purchases import bought_between, history_at
from hierarchy.recall import Question, Scorer, recall_at
from hierarchy.token_retrieval import Profiles, TokenIndex, TokenRetrieval, read_profiles
from tests.benchmarks.hierarchy_levels.ground import Ground

K = 100
TIMES_FEWER = 10
PRIORS = (0.0, 0.25, 0.5, 0.75, 1.0)
FACTORS = {"learner": (0.0, 0.5, 1.0, 2.0, 4.0), "content": (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)}
"""Factors on the popularity of each space, of which the vectors' own best is chosen first."""


class Window(NamedTuple):
    """What is asked at one date: products new to each user, from those known then."""

    as_of: int
    question: Question
    users: NDArray[np.int64]
    events: NDArray[np.int64]
    """How often each product was engaged with by then (products,)."""


class Reference(NamedTuple):
    """The vectors of one space on both windows, with the popularity that served them best on the first."""

    windows: list[Window]
    scorers: list[Learned]
    recall: float


def windows(ground: Ground, users: int) -> list[Window]:
    """Validation and test window, each with at most `users` users drawn by a seed."""
    _, t1, t2 = ground.cuts
    end = t2 + ground.config.evaluation.test_days * MICROS_PER_DAY
    found = []
    for start, stop, as_of in ((t1, t2, ground.dates[1]), (t2, end, ground.dates[2])):
        history = history_at(ground.store, ground.event_type, as_of)
        known = ground.store.known_at("product") <= as_of
        targets = bought_between(ground.store, ground.event_type, start, stop)
        question = Question("new", targets, known, barred=history.matrix())
        asked = np.flatnonzero((np.diff(targets.indptr) > 0) & (np.diff(history.matrix().indptr) > 0))
        if len(asked) > users:
            asked = np.sort(np.random.default_rng(0).choice(asked, users, replace=False))
        found.append(Window(as_of, question, asked, history.popularity().astype(np.int64)))
    return found


def reference(ground: Ground, asked: Sequence[Window], entities: Entities, space: str) -> Reference:
    """Recall@K of the vectors themselves, every product scored."""
    plain = [_scorer(ground, entities[window.as_of]) for window in asked]
    factor = max(FACTORS[space], key=lambda one: recall(asked[0], plain[0].with_popularity(one)))
    scorers = [scorer.with_popularity(factor) for scorer in plain]
    return Reference(list(asked), scorers, recall(asked[1], scorers[1]))


def through_tokens(ground: Ground, refs: Mapping[str, ArtifactRef], vectors: Reference) -> Iterator[tuple[str, float]]:
    """(metric, value) of both ways; the prior is chosen on the validation window, figures are of the test window."""
    levels = published(refs["supergraph"])
    profiles = [_profiles(ground, refs["tokens"], levels, window) for window in vectors.windows]
    yield "vectors' recall@100", vectors.recall
    for name, ranks in (("tokens only", False), ("tokens propose, vectors rank", True)):
        within = vectors.scorers if ranks else [None, None]

        def scorer(place: int, prior: float, within: Sequence[Scorer | None] = within) -> TokenRetrieval:
            window, (people, things) = vectors.windows[place], profiles[place]
            budget = int(window.question.allowed.sum()) // TIMES_FEWER
            index = TokenIndex(things.weights, window.events, prior)
            return TokenRetrieval(index, people.weights, budget, within[place])

        best = max(PRIORS, key=lambda prior: recall(vectors.windows[0], scorer(0, prior)))
        chosen = scorer(1, best)
        found = recall(vectors.windows[1], chosen)
        allowed = vectors.windows[1].question.allowed.mean()
        yield f"{name}: recall@100", found
        yield f"{name}: share of the vectors'", found / max(vectors.recall, 1e-12)
        yield f"{name}: products scored", chosen.share_scored() / allowed


def recall(window: Window, scorer: Scorer) -> float:
    """Mean Recall@K of the window's users."""
    ((found, _),) = recall_at(scorer, [window.question], window.users, k=K)
    return float(np.nanmean(found))


def _scorer(ground: Ground, kinds: Mapping[str, AsOfVectors]) -> Learned:
    sizes = ground.store.num_nodes
    placed = {kind: ground.store.encode(kind, kinds[kind].entity_id) for kind in ("user", "product")}
    users = _rows(kinds["user"].vectors, placed["user"], sizes["user"])
    products = _rows(kinds["product"].vectors[:, 0], placed["product"], sizes["product"])
    return Learned(users, products, _rows(kinds["product"].popularity, placed["product"], sizes["product"]))


def _rows(values: Vectors, place: NDArray[np.int64], count: int) -> Vectors:
    found = np.zeros((count, *values.shape[1:]), values.dtype)
    found[place] = values
    return found


def _profiles(
    ground: Ground, tokens: ArtifactRef, levels: Sequence[Level], window: Window
) -> tuple[Profiles, Profiles]:
    """Users and products by internal id."""
    found = []
    for kind in ("user", "product"):
        ids, weights = read_profiles(tokens, kind, levels, window.as_of)
        place = ground.store.encode(kind, ids)
        coo = weights.tocoo()
        shape = ground.store.num_nodes[kind], weights.shape[1]
        found.append(Profiles(ids, type(weights)((coo.data, (place[coo.row], coo.col)), shape=shape)))
    return found[0], found[1]
