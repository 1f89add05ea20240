from __future__ import annotations

import numpy as np
import pytest

from data.artifacts import ArtifactRef, Store
from data.context import RunContext
from ranking.joins import Joins, join_status
from ranking.reader import MISSING, OK, STALE, TEST, Examples
from tests.ranking.shops import DAY


@pytest.fixture(scope="module")
def joins(examples_ref: ArtifactRef) -> Joins:
    store = Store(examples_ref.path.parents[1])
    inputs = {name: store.get(name, "k") for name in ("histories", "features", "tokens", "user_states")}
    return Joins.open(inputs, 28, RunContext(threads=1))


def test_the_sides_of_a_row_make_the_row(joins: Joins, examples_ref: ArtifactRef) -> None:
    examples = Examples.open(examples_ref)
    column = {name: np.asarray(values[examples.rows(TEST)]) for name, values in examples.columns.items()}
    user, product, ts = (column[name].astype(np.int64) for name in ("user", "product", "ts"))
    nobody = np.full(len(ts), -1)
    whole = joins.rows(user, product, nobody, ts)
    for name, values in whole.items():
        assert np.array_equal(values, column[name]), name
    sides = joins.user_side(user, ts), joins.candidate_side(user, product, nobody, ts)
    assert not sides[0].keys() & sides[1].keys()
    assert whole.keys() == sides[0].keys() | sides[1].keys()


def test_nobody_and_nothing_join_nothing(joins: Joins) -> None:
    absent, ts = np.array([-1]), np.array([10**16])
    row = joins.rows(absent, absent, absent, ts)
    for name in (
        "user_tokens",
        "product_tokens",
        "advertiser_tokens",
        "content",
        "advertiser",
        "pair_age",
        "visit_age",
    ):
        assert row[name].tolist() == [-1], name
    assert row["history_start"] == row["history_end"]
    assert row["product_events"] == row["pair_events"] == 0
    assert row["history_status"] == row["content_status"] == MISSING


def test_a_join_is_stale_from_its_age_on() -> None:
    ts, made = np.array([0, 28, 29]) * DAY, np.zeros(3, np.int64)
    assert join_status(np.array([True, True, True]), ts, made, 28).tolist() == [OK, OK, STALE]
    assert join_status(np.array([False, False, False]), ts, made, 28).tolist() == [MISSING] * 3
