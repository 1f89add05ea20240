"""LightGCN: its smoothing against the dense formula, its losses, its draws, and that it finds planted tastes."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from data.errors import UsageError
from hierarchy.baselines import lightgcn
from hierarchy.baselines.fitting import Limits
from hierarchy.baselines.pairs import Pairs
from hierarchy.purchases import History
from tests.hierarchy.planted_tastes import DEVICES, found, groups, popular

SMALL = {"dims": 16, "lr": 1e-2, "batch": 256}
CPU = torch.device("cpu")


def some_history():
    rng = np.random.default_rng(3)
    return History(rng.integers(0, 6, 20), rng.integers(0, 8, 20), np.zeros(20), 7, 9)


def dense_adjacency(known):
    had = torch.zeros(known.num_users, known.num_products)
    had[known.user, known.product] = 1
    whole = torch.zeros(sum(had.shape), sum(had.shape))
    whole[: known.num_users, known.num_users :] = had
    whole = whole + whole.T
    scale = whole.sum(dim=1).clamp_min(1).rsqrt()
    return scale[:, None] * whole * scale


def test_smoothing_and_its_gradient_are_those_of_the_dense_formula():
    known = some_history()
    model = lightgcn.LightGcn(known, 5, 3, normalised=False)
    dense = dense_adjacency(known)
    want = sum(torch.linalg.matrix_power(dense, power) for power in range(4)) @ model.start / 4
    out = model.propagated(lightgcn.adjacency_of(known, CPU))
    torch.testing.assert_close(out, want)
    weight = torch.randn_like(out)
    (gradient,) = torch.autograd.grad((want * weight).sum(), model.start)
    (ours,) = torch.autograd.grad((out * weight).sum(), model.start)
    torch.testing.assert_close(ours, gradient)


def test_scores_are_dot_products_of_the_smoothed_vectors():
    known, _, _ = groups()
    fitted = lightgcn.fit(known, SMALL, limits=Limits(epochs=1))
    users = np.array([3, 0])
    want = fitted.vectors.users[users] @ fitted.vectors.products.T
    np.testing.assert_array_equal(fitted.scores(users), want.numpy())
    assert fitted.scores(users).dtype == np.float32


def test_bpr_is_the_log_likelihood_of_the_right_order():
    user, liked, other = torch.randn(3, 10, 4).unbind()
    want = -torch.sigmoid((user * liked).sum(1) - (user * other).sum(1)).log().mean()
    torch.testing.assert_close(lightgcn.bpr(user, liked, other), want)


def test_the_sampled_softmax_over_all_products_is_the_full_one():
    user, products = F.normalize(torch.randn(6, 4), dim=1), F.normalize(torch.randn(9, 4), dim=1)
    liked = torch.tensor([0, 3, 3, 8, 1, 2])
    accidental = torch.arange(9) == liked[:, None]
    ours = lightgcn.softmax([user, products[liked], products], torch.zeros(9), accidental, 0.2)
    torch.testing.assert_close(ours, F.cross_entropy(user @ products.T / 0.2, liked))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("more", [{}, {"draw": "event"}, {"loss": "softmax", "negatives": 64}])
def test_it_finds_planted_tastes(device, more):
    known, _, target = groups()
    fitted = lightgcn.fit(known, SMALL | more, device=device, limits=Limits(epochs=40, record=device == "cuda"))
    # Cosines at a temperature find less of so little: .88 to .95 over eight seeds, where inner products find all.
    assert found(fitted, known, target, 6) > (0.8 if more.get("loss") == "softmax" else 0.9)
    assert popular(known, target, 6) < 0.3
    assert fitted.course.losses[-1] < 0.7 * fitted.course.losses[0]


def test_one_seed_gives_one_answer_and_leaves_the_callers_draws_alone():
    known, _, _ = groups()
    users = np.arange(5)
    state = torch.get_rng_state()
    first, again, other = (lightgcn.fit(known, SMALL, seed, limits=Limits(epochs=2)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.scores(users), again.scores(users))
    assert not np.array_equal(first.scores(users), other.scores(users))
    assert torch.equal(state, torch.get_rng_state())


def test_a_later_history_moves_a_user_without_training():
    known, group, _ = groups()
    fitted = lightgcn.fit(known, SMALL, limits=Limits(epochs=40))
    stranger = int(np.flatnonzero(group == 0)[0])
    size = known.num_products // 5
    extra = np.arange(2 * size, 3 * size)
    later = History(
        np.append(known.user, np.full(size, stranger)),
        np.append(known.product, extra),
        np.append(known.age + 1, np.zeros(size)),
        known.num_users,
        known.num_products,
    )
    before, after = (scorer.scores(np.array([stranger]))[0] for scorer in (fitted, fitted.grown(later)))
    assert after[extra].mean() > before[extra].mean() + 0.5 * before.std()


def test_draws_are_events_and_what_was_not_had():
    torch.manual_seed(0)
    known = some_history()
    had = set(zip(known.user.tolist(), known.product.tolist(), strict=True))
    for by_user in (True, False):
        pairs = Pairs(known, CPU, by_user)
        user, product = pairs.draw(4000)
        drawn = list(zip(user.tolist(), product.tolist(), strict=True))
        assert set(drawn) == had
        share = np.bincount(user.numpy(), minlength=6) / 4000
        degree = np.bincount([u for u, _ in had], minlength=6)
        np.testing.assert_allclose(share, np.full(6, 1 / 6) if by_user else degree / degree.sum(), atol=0.04)
        others = list(zip(user.tolist(), pairs.others(user).tolist(), strict=True))
        assert sum(pair in had for pair in others) < 0.03 * 4000, "five draws in a row that hit, at most (5 / 9) ** 5"
        assert len(set(others) - had) == 6 * 9 - len(had), "all that was not had is drawn"


@pytest.mark.parametrize(
    ("setting", "says"), [({"lrr": 1}, "'lr'"), ({"loss": "hinge"}, "bpr"), ({"draw": "x"}, "event")]
)
def test_a_wrong_setting_is_refused(setting, says):
    with pytest.raises(UsageError, match=says):
        lightgcn.fit(groups()[0], setting)


def test_no_events_are_refused():
    none = np.zeros(0, np.int64)
    with pytest.raises(UsageError, match="at least one"):
        lightgcn.fit(History(none, none, np.zeros(0), 3, 3), {})
