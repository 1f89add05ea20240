"""SASRec: what a state may see, its losses against the full softmax, its sequences, and that it learns what follows."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from data.errors import UsageError
from hierarchy.baselines import sasrec
from hierarchy.baselines.fitting import Limits
from hierarchy.purchases import History
from tests.hierarchy.planted_tastes import DEVICES, cycles, found, popular

SMALL = {"dims": 16, "lr": 5e-3, "batch": 64, "dropout": 0.1, "temperature": None}
CPU = torch.device("cpu")


def model(**changes):
    torch.manual_seed(0)
    made = sasrec.SasRec(
        12, {**sasrec.DEFAULTS, "dims": 8, "length": 6, "dropout": 0.0, "temperature": None, **changes}
    )
    torch.nn.init.normal_(made.table.weight)
    return made


def test_a_state_sees_what_came_before_and_nothing_else():
    net = model().eval()
    products, lengths = torch.randint(12, (3, 6)), torch.tensor([6, 6, 6])
    states = net(products, lengths)
    changed = products.clone()
    changed[:, 3] = (changed[:, 3] + 1) % 12
    moved = (net(changed, lengths) - states).abs().amax(dim=(0, 2))
    assert moved[:3].max() == 0, "the past does not know the future"
    assert moved[3:].min() > 1e-3, "the future knows the past"


def test_padding_says_nothing_and_the_newest_product_has_the_last_position():
    net = model().eval()
    lengths = torch.tensor([3])
    one = net(torch.tensor([[4, 2, 7, 0, 0, 0]]), lengths)[:, :3]
    torch.testing.assert_close(net(torch.tensor([[4, 2, 7, 5, 1, 9]]), lengths)[:, :3], one)
    torch.testing.assert_close(net(torch.tensor([[4, 2, 7]]), lengths), one)
    front = net.positions.weight.clone()
    with torch.no_grad():
        net.positions.weight[:3] += 10
    torch.testing.assert_close(net(torch.tensor([[4, 2, 7]]), lengths), one)
    assert not torch.equal(front, net.positions.weight)


@pytest.mark.parametrize("temperature", [None, 0.2])
def test_the_loss_over_all_products_is_the_mean_cross_entropy_of_what_comes_next(temperature):
    net = model(temperature=temperature).eval()
    products, lengths = torch.randint(12, (4, 6)), torch.tensor([6, 2, 4, 3])
    states, table = net(products[:, :-1], lengths - 1), net.products()
    rows = [(u, t) for u in range(4) for t in range(int(lengths[u]) - 1)]
    logits = torch.stack([states[u, t] @ table.T for u, t in rows])
    want = F.cross_entropy(logits, torch.stack([products[u, t + 1] for u, t in rows]))
    torch.testing.assert_close(sasrec.next_loss(net, products, lengths, None, room=20), want)
    few = F.cross_entropy(logits[:5], torch.stack([products[u, t + 1] for u, t in rows[:5]]))
    torch.testing.assert_close(sasrec.next_loss(net, products, lengths, None, room=5), few)


def test_the_sampled_loss_nears_the_full_one_as_negatives_grow():
    """The sign of the logQ correction and the masking of accidental hits both show here."""
    net = model(temperature=0.5).eval()
    products, lengths = torch.randint(12, (4, 6)), torch.tensor([6, 2, 4, 3])
    full = sasrec.next_loss(net, products, lengths, None, room=20)
    sampled = sasrec.next_loss(net, products, lengths, 40_000, room=20)
    torch.testing.assert_close(sampled, full, rtol=0.01, atol=0.01)


def test_sequences_are_the_newest_products_oldest_first():
    known = History(np.array([1, 0, 1, 1, 0]), np.array([5, 6, 7, 8, 9]), np.array([2.0, 1.0, 9.0, 0.0, 1.0]), 3, 10)
    rows = sasrec.Sequences.of(known, 2, CPU)
    assert rows.products.tolist() == [[6, 9], [5, 8], [0, 0]]
    assert rows.lengths.tolist() == [2, 2, 0]
    assert sasrec.Sequences.of(known, 9, CPU).products.tolist() == [[6, 9, 0], [7, 5, 8], [0, 0, 0]]
    assert rows.with_next().lengths.tolist() == [2, 2]


def test_places_are_chosen_in_order_and_lacking_ones_weigh_nothing():
    mask = torch.tensor([False, True, True, False, True])
    place, weight = sasrec.chosen_places(mask, 2)
    assert (place.tolist(), weight.tolist()) == ([1, 2], [1, 1])
    place, weight = sasrec.chosen_places(mask, 5)
    assert place[:3].tolist() == [1, 2, 4]
    assert weight.tolist() == [1, 1, 1, 0, 0]


def test_there_is_room_for_any_batch_but_never_more_than_the_longest_need():
    positions = torch.from_numpy(np.random.default_rng(0).geometric(0.2, 5000))
    room = sasrec.capacity(positions, 64)
    sums = torch.stack([positions[torch.randperm(5000)[:64]].sum() for _ in range(300)])
    assert sums.max() < room < 2 * sums.double().mean()
    assert sasrec.capacity(torch.tensor([3, 3, 3]), 2) == 6


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("more", [{}, {"negatives": None, "temperature": 0.1}, {"precision": "bfloat16"}])
def test_it_learns_what_follows(device, more):
    known, target = cycles()
    limits = Limits(epochs=40, record=device == "cuda")
    fitted = sasrec.fit(known, SMALL | more, device=device, limits=limits)
    assert found(fitted, known, target, 1) > 0.8
    assert popular(known, target, 1) < 0.2


def test_a_later_history_is_scored_from_its_newest_product_without_training():
    known, target = cycles()
    fitted = sasrec.fit(known, SMALL, limits=Limits(epochs=40))
    users = np.arange(known.num_users)
    later = History(
        np.append(known.user, users),
        np.append(known.product, target),
        np.append(known.age + 1, np.zeros(len(users))),
        known.num_users,
        known.num_products,
    )
    hits = fitted.grown(later).scores(users).argmax(axis=1) == (target + 3) % known.num_products
    assert hits.mean() > 0.8


def test_a_user_without_history_scores_zero():
    known, _ = cycles(users=50)
    more = History(known.user, known.product, known.age, 51, known.num_products)
    assert not sasrec.fit(more, SMALL, limits=Limits(epochs=1)).scores(np.array([50])).any()


def test_one_seed_gives_one_answer():
    known, _ = cycles(users=80)
    users = np.arange(5)
    first, again, other = (sasrec.fit(known, SMALL, seed, limits=Limits(epochs=2)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.scores(users), again.scores(users))
    assert not np.array_equal(first.scores(users), other.scores(users))


@pytest.mark.parametrize(
    ("setting", "says"), [({"head": 2}, "'heads'"), ({"dims": 9}, "multiple"), ({"precision": "half"}, "bfloat16")]
)
def test_a_wrong_setting_is_refused(setting, says):
    with pytest.raises(UsageError, match=says):
        sasrec.fit(cycles(users=10)[0], setting)


def test_users_of_one_event_each_are_refused():
    known = History(np.arange(4), np.arange(4), np.zeros(4), 4, 4)
    with pytest.raises(UsageError, match="two events"):
        sasrec.fit(known, SMALL)
