"""What every network must do: move every parameter, learn a batch by heart, keep users apart, learn no noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from data.artifacts import ArtifactRef
from ranking.arms import bags_of
from ranking.baselines.dcnv2 import DCNv2
from ranking.baselines.din import DIN
from ranking.baselines.hstu import HSTU
from ranking.batch import Batcher, Buckets, JaggedBatch, learned_bags
from ranking.delayed import delayed_labels
from ranking.evaluate import normalized_entropy
from ranking.fitting import Sample, Schedule, fit_network
from ranking.heads import joint_loss
from ranking.model import Ranker
from ranking.models import NETWORKS
from ranking.reader import TEST, TRAIN, Examples, Level

BUCKETS = Buckets(user=64, product=64, advertiser=16, category=16, surface=8)
HISTORY = 6
KINDS = (*NETWORKS, "dcnv2-tokens", "din-tokens", "hstu-tokens")


@pytest.fixture(scope="module")
def examples(examples_ref: ArtifactRef) -> Examples:
    return Examples.open(examples_ref)


@pytest.fixture(scope="module")
def batcher(examples: Examples) -> Batcher:
    return Batcher(examples, learned_bags(examples), BUCKETS, HISTORY)


def make(
    kind: str, levels: tuple[Level, ...], content_dim: int, states: tuple[int, int], history: int = HISTORY
) -> nn.Module:
    """A small network by name; baselines read interest tokens when the name ends in -tokens."""
    torch.manual_seed(0)
    model, _, arm = kind.partition("-")
    if model == "ranker":
        return Ranker(BUCKETS, levels, content_dim, states, width=8, dropout=0.0)
    own = levels if arm == "tokens" else ()
    if model == "dcnv2":
        return DCNv2(BUCKETS, content_dim, width=4, dropout=0.0, levels=own)
    if model == "din":
        return DIN(BUCKETS, content_dim, width=8, dropout=0.0, hidden=8, levels=own)
    return HSTU(BUCKETS, content_dim, history, width=8, dropout=0.0, levels=own)


def _network(kind: str, examples: Examples) -> nn.Module:
    return make(kind, examples.levels, examples.content.shape[1], examples.user_states.shape[1:])


def _scores(network: nn.Module, batch: JaggedBatch) -> torch.Tensor:
    with torch.no_grad():
        return torch.stack(network.eval()(batch), dim=1)


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_moves_and_a_small_batch_is_learned_by_heart(
    kind: str, examples: Examples, batcher: Batcher
) -> None:
    network = _network(kind, examples)
    before = {name: value.detach().clone() for name, value in network.named_parameters()}
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    batch = batcher.batch(examples.rows(TRAIN)[-48:])
    for step in range(60):
        optimizer.zero_grad()
        loss = joint_loss(*network(batch), batch.label, 1 - batch.label, torch.ones(48), 1.0)
        loss.backward()
        optimizer.step()
        if step == 1:
            stuck = [name for name, value in network.named_parameters() if torch.equal(value, before[name])]
            assert stuck == []
    assert 0 < batch.label.mean() < 1
    assert float(loss.detach()) < 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_a_users_change_leaves_the_scores_of_others_bitwise_as_they_were(
    kind: str, examples: Examples, batcher: Batcher
) -> None:
    network, batch = _network(kind, examples), batcher.batch(examples.rows(TRAIN)[-60:])
    visit = int(batch.history.lengths.argmax())
    is_mine = torch.arange(len(batch.user)) == visit
    changed = replace(
        batch,
        user=torch.where(is_mine, 5, batch.user),
        user_slots=torch.where(is_mine[:, None], 1, batch.user_slots),
        history=batch.history.with_values(torch.where(batch.history.rows == visit, 0, batch.history.values)),
        history_gap=torch.where(batch.history.rows == visit, 2, batch.history_gap),
    )
    before, after = _scores(network, batch), _scores(network, changed)
    others = batch.visit != visit
    assert torch.equal(before[others], after[others])
    assert not torch.allclose(before[~others], after[~others], atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_scores_alone_as_among_many_and_empty_histories_are_scored(
    kind: str, examples: Examples, batcher: Batcher
) -> None:
    network, rows = _network(kind, examples), examples.rows(TRAIN)[-30:]
    batch = batcher.batch(rows)
    together = _scores(network, batch)
    alone = torch.cat([_scores(network, batcher.batch(rows[i : i + 1])) for i in range(len(rows))])
    assert torch.allclose(alone, together, atol=1e-5)
    assert together.std(0).min() > 1e-3
    empty = replace(
        batch,
        history=batch.history.from_lengths(batch.history.values[:0], batch.history.lengths * 0, HISTORY),
        history_type=batch.history_type[:0],
        history_gap=batch.history_gap[:0],
    )
    assert torch.isfinite(_scores(network, empty)).all()


@pytest.mark.parametrize("kind", ["din", "hstu"])
def test_the_order_of_events_matters_to_hstu_only_and_their_age_to_both(
    kind: str, examples: Examples, batcher: Batcher
) -> None:
    network, batch = _network(kind, examples), batcher.batch(examples.rows(TRAIN)[-40:])
    last = batch.history.offsets[1:] - 1
    first = batch.history.offsets[:-1]
    order = torch.arange(len(batch.history.values))
    order[first], order[last] = last, first
    swapped = replace(
        batch,
        history=batch.history.with_values(batch.history.values[order]),
        history_type=batch.history_type[order],
        history_gap=batch.history_gap[order],
    )
    older = replace(batch, history_gap=(batch.history_gap + 3) % 12)
    same = torch.allclose(_scores(network, batch), _scores(network, swapped), atol=1e-6)
    assert same == (kind == "din")
    assert not torch.allclose(_scores(network, batch), _scores(network, older), atol=1e-5)


@pytest.mark.parametrize("kind", NETWORKS)
def test_shuffled_labels_teach_nothing(kind: str, examples: Examples) -> None:
    rng = np.random.default_rng(0)
    labels = np.array(examples.columns["label"])
    noise = replace(
        examples, columns=examples.columns | {"label": rng.permutation(labels), "sample_prob": np.ones(len(labels))}
    )
    batcher = Batcher(noise, bags_of(noise, "tokens"), BUCKETS, HISTORY)
    sample, rows = Sample.draw(noise, 10**6), noise.rows(TEST)
    network = _network(kind, noise)
    network.heads.start_at(float(noise.columns["label"][sample.train].mean()), 0.5)
    schedule = Schedule(batch_rows=64, epochs=3, averaging=0.9, weight_decay=10.0)
    trained = fit_network(network, batcher, sample, delayed_labels(noise, noise.cuts[1]), schedule, 0)
    ne = normalized_entropy(trained.logits(rows)[0], noise.columns["label"][rows], np.ones(len(rows)))
    assert 0.97 < ne < 1.08, "700 rows leave some noise; with their own labels it is far below 1"
