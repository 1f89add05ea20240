"""How much of the vectors' Recall@100 tokens alone reach, and tokens that only propose, at a tenth of the products.

Tokens alone rank by the weights that two bags share, or by vectors told from them (hierarchy.decoding), of products
only or of users too; popularity lies beside the embeddings and is known to all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from data.artifacts import ArtifactRef
from data.schema import MICROS_PER_DAY
from hierarchy.asof import AsOfVectors
from hierarchy.bags import Vectors
from hierarchy.baselines.emission import Entities
from hierarchy.decoding import decoded
from hierarchy.evaluate import Learned
from hierarchy.levels import Level, published
from hierarchy.purchases import bought_between, history_at
from hierarchy.recall import Question, Scorer, recall_at
from hierarchy.token_retrieval import TokenIndex, TokenRetrieval, read_profiles, spread_over
from tests.benchmarks.hierarchy_levels.ground import Ground

K = 100
TIMES_FEWER = 10
LISTS, TUNERS = 64, 300
PRIORS, TAUS = (0.0, 0.25, 0.5, 1.0, 2.0), (0.2, 0.1, 0.35)
OWN, COUNTED = (0.0, 0.5, 1.0, 2.0, 4.0), (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
"""Factors on the popularity that vectors come with, and on the logarithm of a product's events."""


class Window(NamedTuple):
    """What is asked at one date: products new to each user, from those known then."""

    as_of: int
    question: Question
    users: NDArray[np.int64]
    events: NDArray[np.int64]
    """How often each product was engaged with by then (products,)."""


class Reference(NamedTuple):
    """The vectors of one space on both windows: `choices` by window with each popularity that was tried, of which
    number `best` served them best on the first."""

    windows: list[Window]
    choices: list[list[Learned]]
    best: int
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


def reference(ground: Ground, asked: Sequence[Window], entities: Entities) -> Reference:
    """Recall@K of the vectors themselves, every product scored."""
    choices = [_scorers(ground, entities[window.as_of], window.events) for window in asked]
    best = _best(asked[0], choices[0])
    return Reference(list(asked), choices, best, recall(asked[1], choices[1][best]))


def through_tokens(
    ground: Ground, refs: Mapping[str, ArtifactRef], vectors: Reference, standing: Vectors | None = None
) -> Iterator[tuple[str, float]]:
    """(metric, value) of all ways, candidates by tokens of the finest level, on the test window.

    `standing` (K, d) is what its primitives stand for where the published vectors are axes; vectors cannot be told from
    those. On TUNERS users of the validation window popularity is chosen, then the prior, then tau, for each way.
    """
    levels = published(refs["supergraph"])
    finest = levels[-1]
    near = finest.vectors if standing is None else standing
    bags = [_profiles(ground, refs["tokens"], levels, window) for window in vectors.windows]
    profiles = [[own[:, -len(finest.ids) :] for own in kinds] for kinds in bags]
    first = vectors.windows[0]
    few = first._replace(users=first.users[:: max(1, len(first.users) // TUNERS)])
    yield "vectors' recall@100", vectors.recall
    for name, ranks in _ways(few, vectors, bags, levels if standing is None else []):

        def made(place: int, prior: float, tau: float, ranks: Sequence[Learned] = ranks) -> TokenRetrieval:
            window, (people, things) = vectors.windows[place], profiles[place]
            budget = int(window.question.allowed.sum()) // TIMES_FEWER
            index = TokenIndex(things, window.events, prior)
            spread = spread_over(people, near, tau, LISTS)
            return TokenRetrieval(index, spread, budget, ranks[place] if ranks else None)

        prior = max(PRIORS, key=lambda one: recall(few, made(0, one, TAUS[0])))
        tau = max(TAUS, key=lambda one: recall(few, made(0, prior, one)))
        chosen = made(1, prior, tau)
        found = recall(vectors.windows[1], chosen)
        allowed = float(vectors.windows[1].question.allowed.mean())
        yield f"{name}: recall@100", found
        yield f"{name}: share of the vectors'", found / max(vectors.recall, 1e-12)
        yield f"{name}: products scored", chosen.share_scored() / allowed


def _ways(
    few: Window, vectors: Reference, bags: Sequence[list[sparse.csr_array]], levels: Sequence[Level]
) -> Iterator[tuple[str, list[Learned]]]:
    """Each way's name and what ranks its candidates on both windows; nothing where their tokens do."""
    yield "tokens only", []
    yield "tokens propose, vectors rank", [choices[vectors.best] for choices in vectors.choices]
    if not levels:
        return
    told = [[decoded(own, levels) for own in kinds] for kinds in bags]
    for name, both in (("tokens only, decoded", True), ("tokens of products, decoded", False)):
        made = []
        for choices, (people, things) in zip(vectors.choices, told, strict=True):
            users = people[:, None] if both else choices[0].users
            made.append([choice.with_vectors(users, things) for choice in choices])
        best = _best(few, made[0])
        yield name, [choices[best] for choices in made]


def _best(window: Window, choices: Sequence[Learned]) -> int:
    """The first of those that find most."""
    reached = [recall(window, scorer) for scorer in choices]
    return reached.index(max(reached))


def recall(window: Window, scorer: Scorer) -> float:
    """Mean Recall@K of the window's users."""
    ((found, _),) = recall_at(scorer, [window.question], window.users, k=K)
    return float(np.nanmean(found))


def _scorers(ground: Ground, kinds: Mapping[str, AsOfVectors], events: NDArray[np.int64]) -> list[Learned]:
    """Cosines with the popularity that comes with the vectors, then with that of the events: tokens have a prior of
    their own, so the vectors get the same chance."""
    sizes = ground.store.num_nodes
    placed = {kind: ground.store.encode(kind, kinds[kind].entity_id) for kind in ("user", "product")}
    users = _rows(kinds["user"].vectors, placed["user"], sizes["user"])
    products = _rows(kinds["product"].vectors[:, 0], placed["product"], sizes["product"])
    own = Learned(users, products, _rows(kinds["product"].popularity, placed["product"], sizes["product"]))
    counted = Learned(users, products, np.log1p(events).astype(np.float32))
    return [own.with_popularity(factor) for factor in OWN] + [counted.with_popularity(factor) for factor in COUNTED]


def _rows(values: Vectors, place: NDArray[np.int64], count: int) -> Vectors:
    found = np.zeros((count, *values.shape[1:]), values.dtype)
    found[place] = values
    return found


def _profiles(ground: Ground, tokens: ArtifactRef, levels: Sequence[Level], window: Window) -> list[sparse.csr_array]:
    """Weights of users and of products by internal id, at all levels."""
    found = []
    for kind in ("user", "product"):
        ids, weights = read_profiles(tokens, kind, levels, window.as_of)
        held, place = weights.tocoo(), ground.store.encode(kind, ids)
        shape = ground.store.num_nodes[kind], weights.shape[1]
        found.append(sparse.csr_array((held.data, (place[held.row], held.col)), shape=shape))
    return found
