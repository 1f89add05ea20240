from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from data.artifacts import ArtifactRef
from ranking.batch import Batcher, Buckets, hashed_bags, learned_bags
from ranking.reader import TRAIN, Examples

BUCKETS = Buckets(user=64, product=64, advertiser=16, category=16)


@pytest.fixture(scope="module")
def examples(examples_ref: ArtifactRef) -> Examples:
    return Examples.open(examples_ref)


def _batcher(examples: Examples, history_len: int = 4) -> Batcher:
    return Batcher(examples, learned_bags(examples), BUCKETS, history_len)


def test_rows_of_a_visit_share_its_history(examples: Examples) -> None:
    rows = examples.rows(TRAIN)[:60]
    batch = _batcher(examples).batch(rows)
    user, ts = examples.columns["user"][rows], examples.columns["ts"][rows]
    assert len(batch.user) == len(set(zip(user.tolist(), ts.tolist(), strict=True))) < len(rows)
    for row in range(len(rows)):
        start, end = examples.columns["history_start"][rows[row]], examples.columns["history_end"][rows[row]]
        expected = examples.history["product"][max(start, end - 4) : end]
        visit = int(batch.visit[row])
        at = batch.history.values[batch.history.offsets[visit] : batch.history.offsets[visit + 1]]
        hashed = examples.hashes["product"][expected] % np.uint64(63) + np.uint64(1)
        assert batch.item_product[at].tolist() == hashed.tolist()


def test_labels_and_candidates_keep_the_order_asked_for(examples: Examples) -> None:
    rows = examples.rows(TRAIN)[:50]
    one, other = _batcher(examples).batch(rows), _batcher(examples).batch(rows[::-1])
    assert torch.equal(one.label, other.label.flip(0))
    assert torch.equal(one.item_content[one.candidate], other.item_content[other.candidate].flip(0))
    assert one.label.sum() > 0


def test_absent_content_is_zero(examples: Examples) -> None:
    rows = np.flatnonzero(examples.columns["content"] < 0)[:3]
    batch = _batcher(examples).batch(rows)
    assert len(rows) == 3
    assert (batch.item_content[batch.candidate] == 0).all()


def test_learned_slots_are_those_of_the_token_row(examples: Examples) -> None:
    rows = examples.rows(TRAIN)[:80]
    batch = _batcher(examples).batch(rows)
    pointer = examples.columns["product_tokens"][rows]
    assert (pointer < 0).any()
    assert (pointer >= 0).any()
    assert (batch.product_slots[pointer < 0] == 0).all()
    assert (batch.product_weight[pointer < 0] == 0).all()
    expected = examples.primitive[pointer[pointer >= 0]] + 1
    assert batch.product_slots[pointer >= 0].tolist() == expected.tolist()


def test_hashed_slots_stay_in_their_level_and_weigh_the_same(examples: Examples) -> None:
    bags = hashed_bags(examples)
    base = 0
    for level in examples.levels:
        slots, weight = (bag["product"][:, level.start : level.stop] for bag in (bags.slots, bags.weight))
        assert slots.min() >= base
        assert slots.max() < base + level.size
        assert np.allclose(weight, 1 / (level.stop - level.start))
        base += level.size
    assert len(np.unique(bags.slots["product"], axis=0)) > 5


def test_epochs_shuffle_visits_and_lose_no_row(examples: Examples) -> None:
    rows, batcher = examples.rows(TRAIN), _batcher(examples)
    one, other = batcher.order(rows, 1), batcher.order(rows, 2)
    assert sorted(one.tolist()) == rows.tolist() == sorted(other.tolist())
    assert one.tolist() != other.tolist()
    visits = list(zip(examples.columns["user"][one].tolist(), examples.columns["ts"][one].tolist(), strict=True))
    runs = 1 + sum(a != b for a, b in itertools.pairwise(visits))
    assert runs == len(set(visits)), "rows of a visit stay together"


def test_the_order_of_some_rows_does_not_depend_on_the_others(examples: Examples) -> None:
    rows, batcher = examples.rows(TRAIN), _batcher(examples)
    whole, half = batcher.order(rows, 1), batcher.order(rows[: len(rows) // 2], 1)
    assert [row for row in whole if row in set(half.tolist())] == half.tolist()


def test_ages_fall_into_octaves_of_a_day(examples: Examples) -> None:
    rows = examples.rows(TRAIN)[-40:]
    batch = _batcher(examples, 1).batch(rows)
    age = np.asarray(examples.columns["visit_age"][rows])[np.unique(batch.visit.numpy(), return_index=True)[1]]
    expected = [0 if days <= 0.5 else int(np.ceil(np.log2(days))) + 1 for days in age[age >= 0]]
    assert batch.history_gap.tolist() == expected
    assert len(set(expected)) > 2


def test_a_visit_has_the_states_that_its_rows_point_to(examples: Examples) -> None:
    rows = examples.rows(TRAIN)[:80]
    batch, pointer = _batcher(examples).batch(rows), examples.columns["user_states"][rows]
    assert (pointer >= 0).any()
    missing = np.flatnonzero(examples.columns["user_states"] < 0)
    for row in range(len(rows)):
        expected = np.zeros(examples.user_states.shape[1:])
        if pointer[row] >= 0:
            expected = examples.user_states[pointer[row]].astype(np.float32)
        assert np.array_equal(batch.user_states[batch.visit[row]].numpy(), expected)
        assert bool(batch.has_states[batch.visit[row]]) == (pointer[row] >= 0)
    assert not _batcher(examples).batch(missing[:5]).has_states.any()


def test_without_user_states_nobody_has_any(examples: Examples) -> None:
    rows = examples.rows(TRAIN)[:80]
    whole, without = (Batcher(examples, learned_bags(examples), BUCKETS, 4, on).batch(rows) for on in (True, False))
    assert whole.has_states.any()
    assert not without.has_states.any()
    assert (without.user_states == 0).all()
    assert without.user_states.shape == whole.user_states.shape
    assert torch.equal(whole.history.values, without.history.values)
