"""The planted world: equal for equal arguments, and its interests are really in its events."""

from collections import Counter, defaultdict

from data import parts, synthetic
from data.parts import EVENT_PARTS
from data.schema import to_micros


def test_equal_arguments_give_equal_tables_and_another_seed_gives_others():
    one, two, three = (synthetic.world(users=7, products=20, days=30, seed=seed) for seed in (1, 1, 2))
    assert all(one[name].equals(two[name]) for name in one)
    assert not one["events"].equals(three["events"])


def test_users_buy_what_they_are_interested_in(world):
    category = {row["product_id"]: row["category"] for row in world["products"].to_pylist()}
    department = {row["user_id"]: row["department"] for row in world["user_interests"].to_pylist()}
    bought = [row for row in world["events"].to_pylist() if row["event_type"] == "purchase"]
    within = sum(category[row["product_id"]][0] == department[row["user_id"]] for row in bought)
    assert within / len(bought) > 0.8


def test_purchases_repeat_and_follow_an_impression_of_the_same_request(world):
    seen, repeats = set(), Counter()
    for row in world["events"].to_pylist():
        place = (row["request_id"], row["product_id"])
        if row["event_type"] == "impression":
            seen.add(place)
        elif row["event_type"] == "purchase":
            assert place in seen
            repeats[row["user_id"], row["product_id"]] += 1
    assert sum(times > 1 for times in repeats.values()) > 100


def test_no_event_touches_a_product_before_it_is_known_and_some_products_come_late(world):
    known_at = {row["product_id"]: row["known_at"] for row in world["products"].to_pylist()}
    first = defaultdict(lambda: 1 << 62)
    for row in world["events"].to_pylist():
        if row["product_id"]:
            first[row["product_id"]] = min(first[row["product_id"]], row["ts"])
    assert all(first[product] > known_at[product] for product in first)
    late = [product for product, at in known_at.items() if at > to_micros(synthetic.START)]
    assert len(late) == len(known_at) // 8
    assert any(row["known_at"] > row["ts"] for row in world["events"].to_pylist())


def test_cuts_are_ordered_midnights_inside_the_world(world):
    cuts = synthetic.cuts()
    assert list(cuts) == sorted(cuts)
    assert all(cut.hour == 0 for cut in cuts)
    assert to_micros(cuts[-1]) < world["events"]["ts"][-1].as_py()


def test_the_world_as_an_artifact_describes_itself(synthetic_events, world):
    assert synthetic_events.table(EVENT_PARTS).equals(parts.in_order(world["events"]))
    summary = synthetic_events.json("summary.json")
    assert sum(summary["counts"].values()) == world["events"].num_rows == summary["rows"]["events"]
    assert summary["first_ts"] <= summary["last_ts"]
