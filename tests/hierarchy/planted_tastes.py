"""Small histories with a known truth for learned methods: groups of taste, and cycles that say what comes next."""

import numpy as np
import pytest
import torch
from scipy import sparse

from hierarchy.baselines.popularity import Popularity
from hierarchy.purchases import History
from hierarchy.recall import Question, recall_at

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]),
]
GROUPS, USERS, PRODUCTS, EACH = 5, 150, 60, 7


def groups(seed=0):
    """Users with products of their own group only; (history without the last one, group of users, the last one)."""
    rng = np.random.default_rng(seed)
    group, size = rng.integers(0, GROUPS, USERS), PRODUCTS // GROUPS
    bought = np.stack([g * size + rng.permutation(size)[:EACH] for g in group])
    return flat(bought[:, :-1], PRODUCTS), group, bought[:, -1]


def cycles(users=200, products=40, length=8, seed=0):
    """Each product is followed by the third one after it; (history without the last one, the last one)."""
    start = np.random.default_rng(seed).integers(0, products, users)
    bought = (start[:, None] + 3 * np.arange(length + 1)) % products
    return flat(bought[:, :-1], products), bought[:, -1]


def flat(bought, products):
    """Products by user (users, n), the oldest first, as a history whose newest event has age 0."""
    users, length = bought.shape
    age = np.tile(np.arange(length)[::-1], users).astype(float)
    return History(np.repeat(np.arange(users), length), bought.ravel().astype(np.int64), age, users, products)


def found(scorer, known, target, k):
    """Recall at k of one target a user among what they do not have."""
    users = np.arange(known.num_users)
    wanted = sparse.csr_array((np.ones(len(users), bool), (users, target)), shape=known.matrix().shape)
    question = Question("next", wanted, np.ones(known.num_products, bool), known.matrix())
    return float(np.nanmean(recall_at(scorer, [question], users, k)[0][0]))


def popular(known, target, k):
    """The same of popularity."""
    return found(Popularity(known), known, target, k)
