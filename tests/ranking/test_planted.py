"""A rule that only a match of candidate and history explains: bought if and only if its category was seen before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from data.schema import PRODUCTS, to_micros
from ranking.arms import BASELINE, bags_of
from ranking.baselines.din import DIN
from ranking.baselines.gradient_boosting import fit_gradient_boosting
from ranking.baselines.hstu import HSTU
from ranking.baselines.logistic_regression import fit_logistic_regression
from ranking.batch import Batcher, Buckets
from ranking.delayed import delayed_labels
from ranking.evaluate import Floats, normalized_entropy
from ranking.fitting import Sample, Schedule, fit_network
from ranking.reader import TEST, Examples
from tests.ranking.shops import CONTENT_DIM, DAY, START, T0, Shop, event, make_examples, shop_of

BUCKETS = Buckets(user=2, product=256, advertiser=64, category=256, surface=8)
"""One row for all users: with rows of their own, 500 users are learned by heart before HSTU sees the rule."""
CATEGORIES, PRODUCTS_EACH, HISTORY = 8, 4, 4


def _shop(users: int = 600) -> Shop:
    """Each user looks at three products before T0 and is shown four later, once: no user can be learned by id."""
    rng = np.random.default_rng(0)
    events: list[dict[str, Any]] = []
    for user in range(users):
        looked = rng.choice(CATEGORIES * PRODUCTS_EACH, 3, replace=False)
        for place, product in enumerate(looked.tolist()):
            events.append(event("view", f"u-{user}", f"p-{product}", START + (place + 1) * DAY))
        ts = to_micros(T0) + int(rng.integers(60 * 24)) * DAY // 24
        for product in rng.choice(CATEGORIES * PRODUCTS_EACH, 4, replace=False).tolist():
            name, request = f"p-{product}", f"r-{user}"
            events.append(event("impression", f"u-{user}", name, ts, request, surface="display:1"))
            if product % CATEGORIES in looked % CATEGORIES:
                events.append(event("purchase", f"u-{user}", name, ts, request))
    shop = shop_of(events, [])
    listed = shop.products.to_pylist()
    for row in listed:
        row["category"] = [f"Shelf {int(row['product_id'][2:]) % CATEGORIES}"]
    return replace(shop, products=pa.Table.from_pylist(listed, PRODUCTS))


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return Examples.open(make_examples(_shop(), tmp_path_factory.mktemp("planted")))


@pytest.fixture(scope="module")
def sample(examples: Examples) -> Sample:
    return Sample.draw(examples, 10**6)


@pytest.fixture(scope="module")
def by_crosses(examples: Examples, sample: Sample) -> float:
    """Test NE of logistic regression, which knows who, what and how many, but no match."""
    return _ne(examples, fit_logistic_regression(examples, sample, (0.1,), 1 << 14).logits(examples.rows(TEST))[0])


def _ne(examples: Examples, logits: Floats) -> float:
    rows = examples.rows(TEST)
    return normalized_entropy(logits, np.asarray(examples.columns["label"][rows]), np.ones(len(rows)))


@pytest.mark.parametrize("kind", ["din", "hstu"])
def test_target_aware_networks_find_the_match_that_crosses_cannot(
    kind: str, examples: Examples, sample: Sample, by_crosses: float
) -> None:
    torch.manual_seed(0)
    sizes = (BUCKETS, CONTENT_DIM)
    network = DIN(*sizes, width=16, dropout=0.0) if kind == "din" else HSTU(*sizes, HISTORY, width=16, dropout=0.0)
    batcher = Batcher(examples, bags_of(examples, BASELINE), BUCKETS, HISTORY)
    schedule = Schedule(batch_rows=64, epochs=8, lr=0.005, table_lr=0.02, averaging=0.9, weight_decay=0.1, checks=4)
    trained = fit_network(network, batcher, sample, delayed_labels(examples, examples.cuts[1]), schedule, 0)
    assert by_crosses > 0.8
    assert _ne(examples, trained.logits(examples.rows(TEST))[0]) < 0.2


def test_boosted_trees_are_told_the_match(examples: Examples, sample: Sample) -> None:
    pytest.importorskip("lightgbm")
    batcher = Batcher(examples, bags_of(examples, BASELINE), BUCKETS, HISTORY)
    boosted = fit_gradient_boosting(batcher, sample)
    assert _ne(examples, boosted.logits(examples.rows(TEST))[0]) < 0.05
