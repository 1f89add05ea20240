"""The learner as a retrieval method: trained through the pipeline's stages on planted histories of both kinds."""

import dataclasses

import numpy as np
import pytest
from scipy import sparse

from hierarchy.baselines.popularity import Popularity
from hierarchy.purchases import History
from hierarchy.recall import Question, rank
from tests.benchmarks.retrieval_quality import learner

USERS, PRODUCTS, GROUPS, EVENTS = 90, 48, 4, 9
SMALL = {
    "dim": 24,
    "layers": 1,
    "heads": 2,
    "levels": [{"k": 4, "top": 2}],
    "batch_size": 64,
    "precision": "fp32",
    "dropout": 0.1,
    "id_lr": 1e-2,
    "epochs": 12.0,
    "init_vectors": 200,
}


def planted(ordered):
    """Users stay within one group of products; the last event of each is what is to be found."""
    rng = np.random.default_rng(0)
    size = PRODUCTS // GROUPS
    rows = np.array([rng.permutation(size)[:EVENTS] + size * (user % GROUPS) for user in range(USERS)])
    user = np.repeat(np.arange(USERS), EVENTS - 1)
    age = np.tile(np.arange(EVENTS - 1)[::-1], USERS).astype(np.float64) if ordered else np.zeros(len(user))
    history = History(user, rows[:, :-1].ravel(), age, USERS, PRODUCTS)
    targets = sparse.csr_array((np.ones(USERS, bool), (np.arange(USERS), rows[:, -1])), shape=(USERS, PRODUCTS))
    return history, Question("next", targets, np.ones(PRODUCTS, bool), history.matrix()), rows


def recall(scorer, question, k=3):
    return float(np.nanmean(rank(scorer, [question], np.arange(USERS), k)[0].recall(k, "targets")))


@pytest.mark.parametrize("time_kind", ["order", "clock", "none"])
def test_it_finds_what_was_planted_and_popularity_does_not(time_kind):
    history, question, _ = planted(time_kind != "none")
    views = {"spectral": 8, "directional": 8} if time_kind == "order" else {"spectral": 16, "teacher_dim": 16}
    batch = 32 if time_kind == "none" else 64
    setting = {**SMALL, "batch_size": batch, "structure": views}
    found = learner.fit(history, None, time_kind, setting, 0, "cpu")
    assert recall(found, question) > 3 * recall(Popularity(history), question)


def test_a_grown_history_moves_its_own_user_only():
    history, _, rows = planted(True)
    found = learner.fit(
        history, None, "order", {**SMALL, "epochs": 2.0, "structure": {"spectral": 8, "directional": 8}}, 0, "cpu"
    )
    more = dataclasses.replace(
        history,
        user=np.append(history.user, 0),
        product=np.append(history.product, rows[0, -1]),
        age=np.append(history.age + (history.user == 0), 0.0),
    )
    later = found.grown(more)
    before, after = (one.scores(np.arange(USERS)) for one in (found, later))
    assert np.abs(before[1:] - after[1:]).max() < 1e-5
    assert np.abs(before[0] - after[0]).max() > 1e-3
