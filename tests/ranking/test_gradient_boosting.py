"""Boosted trees and the table they read."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from data.artifacts import ArtifactRef
from data.errors import SystemStateError, UsageError
from ranking.arms import BASELINE, bags_of
from ranking.baselines.gradient_boosting import Trees, fit_gradient_boosting
from ranking.baselines.tabular import columns, tabulate
from ranking.batch import Batcher, Buckets
from ranking.evaluate import log_losses, normalized_entropy
from ranking.fitting import Sample
from ranking.reader import TRAIN, VALIDATION, Examples

BUCKETS = Buckets(user=4096, product=4096, advertiser=4096, category=4096)
SMALL = Trees(rounds=60, patience=10, min_data_in_leaf=10)


@pytest.fixture(scope="module")
def examples(examples_ref: ArtifactRef) -> Examples:
    return Examples.open(examples_ref)


@pytest.fixture(scope="module")
def batcher(examples: Examples) -> Batcher:
    return Batcher(examples, bags_of(examples, "tokens"), BUCKETS, 6)


def test_the_table_counts_what_the_history_shares_with_the_candidate(examples: Examples, batcher: Batcher) -> None:
    rows = examples.rows(TRAIN)[-90:]
    names, categories = columns(examples.levels)
    table = dict(zip(names, tabulate(batcher, rows, examples.levels).T, strict=True))
    owner, path = examples.owner, examples.hashes["category"]
    for place, row in enumerate(rows):
        end, product = examples.columns["history_end"][row], examples.columns["product"][row]
        past = examples.history["product"][max(examples.columns["history_start"][row], end - 6) : end]
        assert table["product_matches"][place] == (past == product).sum()
        assert table["advertiser_matches"][place] == (owner[past] == owner[product]).sum()
        assert table["category_1_matches"][place] == (path[past, 1] == path[product, 1]).sum()
        assert table["category_3_matches"][place] == 0, "an absent prefix matches nothing"
    assert len(set(table["category_1_matches"])) > 2
    assert (table["category_1_match_age"][table["category_1_matches"] == 0] == 12).all()
    assert (table["pair_events"] == examples.columns["pair_events"][rows]).all()
    assert (np.isnan(table["pair_age"]) == (examples.columns["pair_age"][rows] < 0)).all()
    assert set(categories) < set(names)
    assert 0 < table["overlap_product_1"].max() <= 1


def test_without_levels_the_table_holds_nothing_of_the_tokens(examples: Examples, batcher: Batcher) -> None:
    rows = examples.rows(TRAIN)[:50]
    hashed = Batcher(examples, bags_of(examples, "no_tokens"), BUCKETS, 6)
    one, other = tabulate(batcher, rows, ()), tabulate(hashed, rows, ())
    assert np.array_equal(one, other, equal_nan=True)
    whole = (tabulate(some, rows, examples.levels) for some in (batcher, hashed))
    assert not np.array_equal(*whole, equal_nan=True)


def test_trees_stop_by_the_loss_of_the_log_before_sampling(examples: Examples, batcher: Batcher) -> None:
    pytest.importorskip("lightgbm")
    sample, rows = Sample.draw(examples, 400), examples.rows(VALIDATION)
    boosted = fit_gradient_boosting(batcher, sample, examples.levels, SMALL, seed=3)
    logits, deep = boosted.logits(rows)
    labels = np.asarray(examples.columns["label"][rows])
    weights = 1.0 / examples.columns["sample_prob"][rows].astype(np.float64)
    assert sample.shift < -0.5
    assert deep is None
    loss = np.average(log_losses(logits, labels), weights=weights)
    assert boosted.booster.best_score["valid_0"]["binary_logloss"] == pytest.approx(loss, rel=1e-6)
    assert normalized_entropy(logits, labels, weights) < 0.97
    again = fit_gradient_boosting(batcher, sample, examples.levels, SMALL, seed=3)
    assert (again.logits(rows)[0] == logits).all(), "the same seed gives the same trees"
    assert boosted.tensors()["model"].numpy().tobytes().startswith(b"tree")
    assert boosted.num_leaves > boosted.booster.num_trees()
    assert boosted.logits(rows[:0])[0].shape == (0,)


def test_a_missing_library_names_the_extra(
    examples: Examples, batcher: Batcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(SystemStateError, match=r"\[bench\]"):
        fit_gradient_boosting(batcher, Sample.draw(examples, 400))


def test_one_level_keeps_its_own_slots_only(examples: Examples) -> None:
    whole, one = bags_of(examples, "tokens"), bags_of(examples, "level_2")
    level = examples.levels[1]
    for kind in ("user", "product", "advertiser"):
        kept = one.slots[kind][:, level.start : level.stop]
        assert (kept == whole.slots[kind][:, level.start : level.stop]).all()
        assert (kept >= 0).any()
        assert (np.delete(one.slots[kind], range(level.start, level.stop), axis=1) == -1).all()
        assert one.weight[kind].sum() == pytest.approx(whole.weight[kind][:, level.start : level.stop].sum())


def test_an_unknown_arm_says_what_is_known(examples: Examples) -> None:
    with pytest.raises(UsageError, match="did you mean 'level_2'"):
        bags_of(examples, "level2")
    assert bags_of(examples, BASELINE).column["user"] == "user"
