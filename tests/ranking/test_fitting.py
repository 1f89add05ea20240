from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from data.artifacts import ArtifactRef
from ranking.batch import Batcher, Buckets, JaggedBatch, learned_bags
from ranking.delayed import Delayed, Strategy, delayed_labels
from ranking.evaluate import normalized_entropy
from ranking.fitting import Sample, Schedule, Trained, fit_network, predict
from ranking.heads import Heads
from ranking.model import Ranker
from ranking.numbers import CROSSES, NUMBERS, steps, table_size
from ranking.reader import TRAIN, VALIDATION, Examples
from tests.ranking.shops import DAY

BUCKETS = Buckets(user=64, product=64, advertiser=16, category=16, surface=8)


@pytest.fixture(scope="module")
def examples(examples_ref: ArtifactRef) -> Examples:
    return Examples.open(examples_ref)


def _fit(
    examples: Examples,
    seed: int = 0,
    network: nn.Module | None = None,
    delayed: Delayed | None = None,
    **schedule: object,
) -> Trained:
    torch.manual_seed(seed)
    batcher = Batcher(examples, learned_bags(examples), BUCKETS, 6)
    network = network or Ranker(
        BUCKETS, examples.levels, examples.content.shape[1], examples.user_states.shape[1:], width=8
    )
    sample, delayed = Sample.draw(examples, 10**6), delayed or delayed_labels(examples, examples.cuts[1])
    return fit_network(network, batcher, sample, delayed, Schedule(**({"batch_rows": 64} | schedule)), seed)


def test_thinning_keeps_every_positive_and_corrects_for_the_rest(examples: Examples) -> None:
    rows = examples.rows(TRAIN)
    labels, prob = examples.columns["label"][rows], examples.columns["sample_prob"][rows]
    positives = int(labels.sum())
    sample = Sample.draw(examples, 2 * positives)
    kept = examples.columns["label"][sample.train]
    assert kept.sum() == positives
    assert 0.8 * positives < (kept == 0).sum() < 1.2 * positives < (labels == 0).sum()
    share = (kept == 0).sum() / (labels == 0).sum()
    assert sample.shift == pytest.approx(np.log(share * prob[labels == 0][0]), abs=1e-6)
    assert sample.validation.tolist() == examples.rows(VALIDATION).tolist()


def test_many_positives_leave_half_of_the_sample_to_negatives(examples: Examples) -> None:
    rows = examples.rows(TRAIN)
    labels, prob = examples.columns["label"][rows], examples.columns["sample_prob"][rows]
    sample = Sample.draw(examples, 120)
    kept = examples.columns["label"][sample.train]
    assert 40 < kept.sum() < 80
    assert 40 < (kept == 0).sum() < 80
    shares = [(kept == value).sum() / (labels == value).sum() for value in (0, 1)]
    assert sample.shift == pytest.approx(np.log(shares[0] * prob[labels == 0][0] / shares[1]), abs=1e-6)


def test_without_a_limit_all_rows_are_kept(examples: Examples) -> None:
    sample = Sample.draw(examples, 10**6)
    assert sample.train.tolist() == examples.rows(TRAIN).tolist()
    assert sample.shift == pytest.approx(np.log(0.25), abs=1e-6)


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(examples: Examples) -> None:
    one, same, other = (_fit(examples, seed).tensors() for seed in (3, 3, 4))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["heads.tasks.weight"], other["heads.tasks.weight"])


def test_the_state_with_the_least_validation_loss_is_restored(examples: Examples) -> None:
    trained = _fit(examples, lr=0.01, table_lr=0.01, epochs=12, checks=6, averaging=0.5)
    losses = [check["validation_ne"] for check in trained.seen]
    assert len(losses) == 6
    rows = examples.rows(VALIDATION)
    labels = examples.columns["label"][rows]
    weights = 1.0 / examples.columns["sample_prob"][rows].astype(np.float64)
    assert min(losses) < losses[-1], "the test needs a run that gets worse"
    assert normalized_entropy(trained.logits(rows)[0], labels, weights) == pytest.approx(min(losses), rel=1e-9)


def test_training_learns_more_than_the_base_rate(examples: Examples) -> None:
    trained = _fit(examples, epochs=4, lr=0.01, table_lr=0.01)
    assert min(check["validation_ne"] for check in trained.seen) < 0.97


def test_scores_do_not_depend_on_the_batch_size(examples: Examples) -> None:
    trained, rows = _fit(examples), examples.rows(VALIDATION)
    one, other = (predict(trained.network, trained.batcher, rows, size)[0] for size in (7, 4096))
    assert np.allclose(one, other, atol=1e-5)
    assert predict(trained.network, trained.batcher, rows[:0])[0].shape == (0,)


class _Constant(nn.Module):
    """A network of one number, to see what the delayed labels teach."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = Heads(1, 1, 0.0)
        self.table = nn.Embedding(1, 2)

    def forward(self, batch: JaggedBatch) -> tuple[Tensor, Tensor]:
        logits = self.table(torch.zeros(len(batch.label), dtype=torch.int64))
        return logits[:, 0], logits[:, 1]


def test_the_deep_head_learns_from_labels_known_before_t1_only(examples: Examples) -> None:
    delayed = delayed_labels(examples, examples.cuts[1])
    train = examples.rows(TRAIN)
    known = train[delayed.known[train]]
    assert 0 < len(known) < examples.columns["label"][train].sum()
    trained = _fit(examples, network=_Constant(), lr=0.2, table_lr=0.2, epochs=60, deep_weight=1.0, weight_decay=0.0)
    with torch.no_grad():
        learned = torch.sigmoid(trained.network.table.weight[0, 1])
    assert float(learned) == pytest.approx(delayed.label[known].mean(), abs=0.08)


@pytest.mark.parametrize("strategy", ["importance", "likelihood"])
def test_the_deep_head_learns_the_corrected_rate_from_young_rows_too(examples: Examples, strategy: Strategy) -> None:
    delayed = delayed_labels(examples, examples.cuts[1], strategy)
    train = examples.rows(TRAIN)
    young = examples.columns["ts"][train] > examples.cuts[1] - examples.deep_days * DAY
    assert delayed.known[train][young].any()
    rate = float((delayed.weight * delayed.label)[train].sum() / (delayed.weight * delayed.share)[train].sum())
    schedule = {"lr": 0.2, "table_lr": 0.2, "epochs": 60, "deep_weight": 1.0, "weight_decay": 0.0}
    trained = _fit(examples, network=_Constant(), delayed=delayed, **schedule)
    with torch.no_grad():
        learned = torch.sigmoid(trained.network.table.weight[0, 1])
    assert float(learned) == pytest.approx(rate, abs=0.08)


def test_a_schedule_waits_or_corrects_and_never_trains_on_labels_of_the_future() -> None:
    assert Schedule(delay="waiting").delay == "waiting"
    with pytest.raises(ValidationError, match="oracle"):
        Schedule(delay="oracle")


def test_numbers_step_by_half_octaves(examples: Examples) -> None:
    row = {name: np.array([0, 1, 3, 10**6]) for name in ("history_end", "product_events", "pair_events")}
    row |= {
        "history_start": np.zeros(4, np.int64),
        "visit_age": np.array([-1.0, 0, 1, 3]),
        "pair_age": np.full(4, -1.0),
    }
    found = steps(row)
    assert found["pair"].tolist() == [0, 2, 4, 31]
    assert found["visit_age"].tolist() == [0, 2, 3, 4]
    batch = Batcher(examples, learned_bags(examples), BUCKETS, 6).batch(examples.rows(TRAIN))
    assert batch.numbers.shape[1] == len(NUMBERS) + len(CROSSES)
    assert batch.numbers.max() < table_size()
    assert all(
        len(set(a) & set(b)) == 0 for i, a in enumerate(batch.numbers.T.tolist()) for b in batch.numbers.T.tolist()[:i]
    )
