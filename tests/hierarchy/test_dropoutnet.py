"""DropoutNet: what it drops, what its users are made of, and that content finds products that nobody ever bought."""

import numpy as np
import pytest
import torch
from scipy import sparse

from data.errors import UsageError
from hierarchy.baselines import dropoutnet
from hierarchy.baselines.fitting import Limits
from hierarchy.kmeans import unit
from hierarchy.purchases import History
from hierarchy.recall import Question, recall_at
from tests.hierarchy.planted_tastes import DEVICES, GROUPS, PRODUCTS, USERS, found, groups, popular

COLD = 20
SMALL = {"dims": 16, "hidden": (32,), "lr": 1e-2, "users": 64, "products": 128}


def catalogue(noise=0.3):
    """The planted history with twenty more products that nobody bought, and content that hints at the group of all."""
    known, group, target = groups()
    rng = np.random.default_rng(5)
    theirs = np.append(np.arange(PRODUCTS) // (PRODUCTS // GROUPS), np.arange(COLD) % GROUPS)
    mixing = rng.normal(size=(GROUPS, 12))
    content = unit((mixing[theirs] + noise * rng.normal(size=(len(theirs), 12))).astype(np.float32))
    more = History(known.user, known.product, known.age, USERS, PRODUCTS + COLD)
    return more, content, group, theirs, target


def preferences(known, dims=8):
    """Singular vectors of who had what."""
    left, size, right = np.linalg.svd(known.matrix().toarray(), full_matrices=False)
    return (left * size)[:, :dims].astype(np.float32), right[:dims].T.astype(np.float32)


def cold_recall(scorer, group, theirs, k=4):
    """Recall among products without events of those of the user's group."""
    wanted = sparse.csr_array((group[:, None] == theirs) & (np.arange(len(theirs)) >= PRODUCTS))
    question = Question("cold", wanted, np.arange(len(theirs)) >= PRODUCTS)
    return float(np.nanmean(recall_at(scorer, [question], np.arange(len(group)), k)[0][0]))


@pytest.mark.parametrize("device", DEVICES)
def test_it_finds_what_nobody_bought_from_content_and_keeps_what_it_knew(device):
    known, content, group, theirs, target = catalogue()
    fitted = dropoutnet.fit(known, preferences(known), content, SMALL, device=device, limits=Limits(epochs=60))
    assert cold_recall(fitted, group, theirs) > 0.8
    assert found(fitted, known, target, 10) > 0.8, "six warm ones of the group are left, and four cold ones"
    assert popular(known, target, 10) < 0.4
    assert fitted.course.losses[-1] < 0.5 * fitted.course.losses[0]


def test_without_dropping_content_is_worth_less():
    known, content, group, theirs, _ = catalogue(noise=1.0)
    given = preferences(known)
    never, often = (
        dropoutnet.fit(known, given, content, SMALL | {"dropped": share}, limits=Limits(epochs=60))
        for share in (0.0, 0.5)
    )
    assert cold_recall(often, group, theirs) > cold_recall(never, group, theirs) + 0.02


def test_preference_of_products_without_events_is_not_looked_at():
    known, content, *_ = catalogue()
    users, products = preferences(known)
    told = products.copy()
    told[PRODUCTS:] = 100
    scores = [
        dropoutnet.fit(known, (users, given), content, SMALL, limits=Limits(epochs=1)).scores(np.arange(3))
        for given in (products, told)
    ]
    np.testing.assert_array_equal(*scores)


def test_dropping_zeroes_preference_and_leaves_content():
    torch.manual_seed(0)
    table = torch.ones(4000, 5)
    seen = dropoutnet.dropped(table, 2, 0.3)
    assert seen[:, 2:].eq(1).all()
    assert seen[:, 0].eq(seen[:, 1]).all()
    assert abs(seen[:, 0].mean().item() - 0.7) < 0.03


def test_users_are_the_mean_of_what_they_had():
    known, content, *_ = catalogue()
    inputs = dropoutnet.Inputs(known, preferences(known)[1], content)
    had = known.product[known.user == 7]
    np.testing.assert_allclose(inputs.users(known)[7], inputs.products[had].mean(axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.square(inputs.products[:PRODUCTS, :8]).mean(), 1, rtol=1e-4)
    assert not inputs.products[PRODUCTS:, :8].any()


def test_one_seed_gives_one_answer_and_a_later_history_another():
    known, content, *_ = catalogue()
    given = preferences(known)
    users = np.arange(5)
    first, again = (dropoutnet.fit(known, given, content, SMALL, 1, limits=Limits(epochs=1)) for _ in range(2))
    np.testing.assert_array_equal(first.scores(users), again.scores(users))
    later = History(np.append(known.user, 0), np.append(known.product, 79), np.append(known.age, 0), USERS, 80)
    grown = first.grown(later).scores(users)
    assert not np.array_equal(grown[0], first.scores(users)[0])
    np.testing.assert_allclose(grown[1:], first.scores(users)[1:], rtol=1e-4, atol=1e-4)


def test_arrays_that_do_not_fit_are_refused():
    known, content, *_ = catalogue()
    users, products = preferences(known)
    with pytest.raises(UsageError, match="content of 80"):
        dropoutnet.fit(known, (users, products), content[:-1], SMALL)
    with pytest.raises(UsageError, match="same history"):
        dropoutnet.fit(known, (users[:-1], products), content, SMALL)
    with pytest.raises(UsageError, match="'hidden'"):
        dropoutnet.fit(known, (users, products), content, {"hiden": ()})
