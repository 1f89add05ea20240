"""People simulated on a catalogue that somebody else gave: its ids and owners, interests within its own tree."""

from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest

from data.errors import BadDataError
from data.generator import log
from data.generator.config import Config
from data.generator.given import SOURCE, Given, plan_on
from data.schema import EVENTS

CONFIG = Config(users=300, events=40_000, days=60, seed=5)
SIZES = {("Women", "Heels"): 90, ("Women", "Tops"): 40, ("Men", "Ties"): 1, ("Men", "Shirts"): 60}


def given(order=1):
    wanted = [pair for pair, count in SIZES.items() for _ in range(count)][::order]
    return Given(
        [f"id-{place}" for place in range(len(wanted))],
        [f"{pair[0]} brand {place % 3}" for place, pair in enumerate(wanted)],
        wanted,
    )


@pytest.fixture(scope="module")
def plan():
    return plan_on(CONFIG, given())


@pytest.fixture(scope="module")
def events(plan):
    return pa.concat_tables(table for day in range(CONFIG.days) for table in log.day(plan, day))


def test_rows_are_of_the_catalogue_and_say_that_they_are_simulated(events):
    catalogue = given()
    owner = dict(zip(catalogue.products, catalogue.advertisers, strict=True))
    assert events.schema.equals(EVENTS)
    assert len(events) == pytest.approx(CONFIG.events, rel=0.05)
    assert set(events["source"].to_pylist()) == {SOURCE} == {"simulated"}
    for row in events.select(["product_id", "advertiser_id", "event_type"]).to_pylist():
        assert (row["product_id"] is None) == (row["event_type"] == "interested")
        assert row["product_id"] is None or owner[row["product_id"]] == row["advertiser_id"]
    assert set(events["advertiser_id"].to_pylist()) == set(owner.values())


def test_nothing_is_paid_where_the_catalogue_names_no_price(events):
    assert events["value"].null_count == len(events)
    assert set(events["event_type"].to_pylist()) >= {"purchase", "conversion"}


def test_people_click_within_their_department_and_mostly_on_their_two_leaves(events, plan):
    catalogue = given()
    pair = dict(zip(catalogue.products, catalogue.wanted, strict=True))
    leaves = catalogue.leaves()
    number = {f"u{user:08d}": user for user in range(CONFIG.users)}
    near = fine = total = 0
    for row in events.to_pylist():
        if row["event_type"] != "click":
            continue
        user = np.array([number[row["user_id"]]], np.int32)
        day = (row["ts"] - CONFIG.first_micros) // 86_400_000_000
        own = [leaves[plan.interest(user, slot, day)[0]] for slot in (0, 1)]
        assert own[0][0] == own[1][0]
        near += pair[row["product_id"]][0] == own[0][0]
        fine += pair[row["product_id"]] in own
        total += 1
    assert near / total > 0.9
    assert fine / total > 0.75


def test_a_larger_leaf_is_wanted_by_more_people_and_the_smallest_by_some(plan):
    users = np.arange(CONFIG.users, dtype=np.int32)
    wanted = Counter(np.concatenate([plan.interest(users, slot, day) for slot in (0, 1) for day in (0, 59)]).tolist())
    leaves = given().leaves()
    counts = {leaves[leaf]: count for leaf, count in wanted.items()}
    assert set(counts) == set(SIZES)
    assert counts["Men", "Ties"] < counts["Men", "Shirts"] / 2
    assert counts["Women", "Heels"] > counts["Women", "Tops"]


def test_nothing_is_shown_before_it_is_known_and_some_products_come_late(events, plan):
    known = dict(zip(given().products, plan.known_at(plan.product_day).tolist(), strict=True))
    assert all(row["product_id"] is None or known[row["product_id"]] < row["ts"] for row in events.to_pylist())
    assert 0.05 < (plan.product_day > 0).mean() < 0.3
    first = defaultdict(list)
    for owner, day in zip(plan.product_advertiser.tolist(), plan.product_day.tolist(), strict=True):
        first[owner].append(day)
    assert plan.advertiser_day.tolist() == [min(first[owner]) for owner in range(len(plan.advertiser_day))]


def test_however_many_come_late_no_leaf_is_ever_empty():
    late = plan_on(CONFIG.model_copy(update={"cold_share": 0.95}), given())
    assert (late.product_day > 0).mean() > 0.85
    assert late.products_on(0)[1].min() == 1


def test_equal_configs_give_equal_days_and_another_seed_others(plan):
    alone = pa.concat_tables(log.day(plan_on(CONFIG, given()), 7))
    assert alone.equals(pa.concat_tables(log.day(plan, 7)))
    other = plan_on(CONFIG.model_copy(update={"seed": 6}), given())
    assert not alone.equals(pa.concat_tables(log.day(other, 7)))


def test_a_catalogue_of_one_product_is_enough():
    plan = plan_on(Config(users=10, events=200, days=2), Given(["x"], ["y"], [("a", "b")]))
    found = pa.concat_tables(table for day in range(2) for table in log.day(plan, day))
    assert {*found["product_id"].to_pylist()} <= {"x", None}


@pytest.mark.parametrize("wrong", [([], [], []), (["x"], [], [("a", "b")]), (["x"], ["y"], [])])
def test_a_catalogue_with_gaps_is_refused(wrong):
    with pytest.raises(BadDataError, match="expected an advertiser and an interest"):
        Given(*wrong)
