from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from data.artifacts import ArtifactRef
from ranking.baselines.dcnv2 import DCNv2
from ranking.batch import Batcher, Buckets, JaggedBatch, hashed_bags, learned_bags
from ranking.heads import joint_loss
from ranking.model import Ranker
from ranking.reader import TRAIN, Examples
from ranking.tokenization import Groups, overlap

BUCKETS = Buckets(user=64, product=64, advertiser=16, category=16, surface=8)


@pytest.fixture(scope="module")
def examples(examples_ref: ArtifactRef) -> Examples:
    return Examples.open(examples_ref)


@pytest.fixture(scope="module")
def batcher(examples: Examples) -> Batcher:
    return Batcher(examples, learned_bags(examples), BUCKETS, 6)


def _ranker(examples: Examples, dropout: float = 0.0) -> Ranker:
    torch.manual_seed(0)
    shape = examples.user_states.shape[1:]
    return Ranker(BUCKETS, examples.levels, examples.content.shape[1], shape, width=8, dropout=dropout)


def _network(kind: str, examples: Examples) -> nn.Module:
    torch.manual_seed(0)
    return _ranker(examples) if kind == "ranker" else DCNv2(BUCKETS, examples.content.shape[1], width=4, dropout=0.0)


def _scores(network: nn.Module, batch: JaggedBatch) -> torch.Tensor:
    with torch.no_grad():
        return torch.stack(network.eval()(batch), dim=1)


@pytest.mark.parametrize("kind", ["ranker", "dcnv2"])
def test_one_step_moves_every_parameter(kind: str, examples: Examples, batcher: Batcher) -> None:
    network = _network(kind, examples)
    before = {name: value.clone() for name, value in network.named_parameters()}
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    batch = batcher.batch(examples.rows(TRAIN))
    joint_loss(*network(batch), batch.label, 1 - batch.label, torch.ones(len(batch.label)), 1.0).backward()
    optimizer.step()
    stuck = [name for name, value in network.named_parameters() if torch.equal(value, before[name])]
    assert stuck == []


@pytest.mark.parametrize("kind", ["ranker", "dcnv2"])
def test_a_small_batch_can_be_learned_by_heart(kind: str, examples: Examples, batcher: Batcher) -> None:
    network = _network(kind, examples)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    batch = batcher.batch(examples.rows(TRAIN)[:48])
    known = torch.ones(48)
    for _ in range(120):
        optimizer.zero_grad()
        loss = joint_loss(*network(batch), batch.label, 1 - batch.label, known, 1.0)
        loss.backward()
        optimizer.step()
    assert 0 < batch.label.mean() < 1
    assert float(loss.detach()) < 0.05


@pytest.mark.parametrize("count", [1, 2, 7, 8])
def test_a_visit_alone_in_its_batch_scores_as_beside_others(count: int, examples: Examples, batcher: Batcher) -> None:
    network, row = _ranker(examples), int(examples.rows(TRAIN)[-1])
    columns = {name: np.repeat(column[row : row + 1], count + 1) for name, column in examples.columns.items()}
    columns["product"] = np.arange(count + 1, dtype=np.int32)
    columns["product_tokens"] = np.arange(count + 1, dtype=np.int32)
    columns["ts"][-1] += 1
    other = batcher.on(columns)
    alone = _scores(network, other.batch(np.arange(count)))
    beside = _scores(network, other.batch(np.arange(count + 1)))[:count]
    assert torch.allclose(alone, beside, atol=1e-5)
    assert count == 1 or alone.std(0).min() > 1e-4


@pytest.mark.parametrize("kind", ["ranker", "dcnv2"])
def test_a_batch_of_one_scores_as_in_a_batch_of_many(kind: str, examples: Examples, batcher: Batcher) -> None:
    network, rows = _network(kind, examples), examples.rows(TRAIN)[-70:]
    together = _scores(network, batcher.batch(rows))
    alone = torch.cat([_scores(network, batcher.batch(rows[i : i + 1])) for i in range(len(rows))])
    assert torch.allclose(alone, together, atol=1e-5)
    assert together.std(0).min() > 1e-3


def test_what_one_user_did_does_not_change_the_scores_of_another(examples: Examples, batcher: Batcher) -> None:
    rows = examples.rows(TRAIN)[-60:]
    network, batch = _ranker(examples), batcher.batch(rows)
    mine = 0
    owner = torch.repeat_interleave(torch.arange(len(batch.user)), batch.history.lengths)
    changed = replace(
        batch,
        user=torch.where(torch.arange(len(batch.user)) == mine, 5, batch.user),
        user_slots=torch.where(torch.arange(len(batch.user))[:, None] == mine, 1, batch.user_slots),
        history_type=torch.where(owner == mine, 2, batch.history_type),
    )
    before, after = _scores(network, batch), _scores(network, changed)
    others = batch.visit != mine
    assert torch.equal(before[others], after[others])
    assert not torch.allclose(before[~others], after[~others], atol=1e-4)


def test_an_empty_history_and_an_unseen_user_are_scored(examples: Examples, batcher: Batcher) -> None:
    batch = batcher.batch(examples.rows(TRAIN)[:5])
    empty = replace(
        batch,
        history=batch.history.from_lengths(batch.history.values[:0], batch.history.lengths * 0, 6),
        history_type=batch.history_type[:0],
        history_gap=batch.history_gap[:0],
        user=torch.zeros_like(batch.user),
        user_slots=torch.zeros_like(batch.user_slots),
        user_weight=torch.zeros_like(batch.user_weight),
    )
    assert torch.isfinite(_scores(_ranker(examples), empty)).all()


def test_history_reaches_the_score(examples: Examples, batcher: Batcher) -> None:
    batch = batcher.batch(examples.rows(TRAIN)[-40:])
    other = replace(batch, history_gap=(batch.history_gap + 3) % 12)
    network = _ranker(examples)
    assert not torch.allclose(_scores(network, batch), _scores(network, other), atol=1e-5)


def test_both_arms_have_equally_many_parameters_all_alive(examples: Examples) -> None:
    rows = examples.rows(TRAIN)
    alive = []
    for bags in (learned_bags(examples), hashed_bags(examples)):
        network = _ranker(examples)
        batch = Batcher(examples, bags, BUCKETS, 6).batch(rows)
        network(batch)[0].sum().backward()
        table = network.tokenizer.primitive.weight
        assert table.shape[0] == 1 + sum(level.size for level in examples.levels)
        alive.append((sum(p.numel() for p in network.parameters()), int((table.grad.abs().sum(1) > 0)[1:].sum())))
    assert alive[0][0] == alive[1][0]
    assert alive[0][1] == alive[1][1] == sum(level.size for level in examples.levels)


def test_equal_primitives_of_user_and_product_share_one_vector(examples: Examples, batcher: Batcher) -> None:
    network, batch = _ranker(examples), batcher.batch(examples.rows(TRAIN)[:4])
    bag = replace(batch, user_slots=batch.user_slots * 0, advertiser_slots=batch.advertiser_slots * 0)
    network(bag)[0].sum().backward()
    touched = (network.tokenizer.primitive.weight.grad.abs().sum(1) > 0).nonzero().flatten()
    network.zero_grad()
    network(replace(batch, product_slots=batch.product_slots * 0))[0].sum().backward()
    of_users = (network.tokenizer.primitive.weight.grad.abs().sum(1) > 0).nonzero().flatten()
    assert set(touched.tolist()) & set(of_users.tolist())


def test_overlap_sums_products_of_weights_over_shared_primitives(examples: Examples) -> None:
    levels = examples.levels
    rng = np.random.default_rng(0)
    slots = rng.integers(0, 5, (2, 40, levels[-1].stop))
    weight = rng.random(slots.shape).astype(np.float32)
    a, b = torch.from_numpy(slots), torch.from_numpy(weight)
    found = overlap(a[0], b[0], a[1], b[1], levels)
    for row in range(40):
        for number, level in enumerate(levels):
            cells = range(level.start, level.stop)
            expected = sum(
                weight[0, row, i] * weight[1, row, j]
                for i in cells
                for j in cells
                if slots[0, row, i] == slots[1, row, j] > 0
            )
            assert float(found[row, number]) == pytest.approx(expected, rel=1e-5)


def test_rows_packed_by_visit_come_back_in_place() -> None:
    visit = torch.tensor([2, 0, 2, 2, 1, 2, 2, 0])
    groups = Groups.of(visit)
    rows = torch.randn(8, 3, 5)
    packed = groups.pack(rows)
    assert groups.visit.tolist() == [0, 1, 2, 2]
    assert packed.shape == (4, 12, 5)
    assert torch.equal(groups.unpack(packed), rows)
    for row in range(8):
        assert groups.visit[groups.place[row] // 4] == visit[row]


def test_heads_start_at_the_base_rates(examples: Examples) -> None:
    network = _ranker(examples)
    network.heads.start_at(0.2, 1.0)
    nn.init.zeros_(network.heads.tasks.weight)
    with torch.no_grad():
        immediate, deep = network.heads(torch.randn(3, network.heads.norm.normalized_shape[0]))
    assert torch.allclose(torch.sigmoid(immediate), torch.full((3,), 0.2))
    assert torch.allclose(torch.sigmoid(deep), torch.full((3,), 1 - 1e-4))


def test_unknown_delayed_labels_do_not_enter_the_loss() -> None:
    logits, label = torch.zeros(4), torch.tensor([1.0, 0.0, 1.0, 0.0])
    known = torch.tensor([1.0, 0.0, 0.0, 0.0])
    deep = torch.tensor([0.0, 9.0, -9.0, 9.0])
    expected = np.log(2) + 0.5 * np.log(2) / 4
    assert float(joint_loss(logits, deep, label, label, known, 0.5)) == pytest.approx(expected)


def test_user_states_reach_the_score_and_masked_ones_do_not(examples: Examples, batcher: Batcher) -> None:
    batch, network = batcher.batch(examples.rows(TRAIN)[-40:]), _ranker(examples)
    other = replace(batch, user_states=batch.user_states.flip(1) + 1)
    assert batch.has_states.any()
    assert not torch.allclose(_scores(network, batch), _scores(network, other), atol=1e-5)
    masked = [replace(version, has_states=torch.zeros_like(version.has_states)) for version in (batch, other)]
    assert torch.equal(_scores(network, masked[0]), _scores(network, masked[1]))
    assert not torch.allclose(_scores(network, batch), _scores(network, masked[0]), atol=1e-5)
