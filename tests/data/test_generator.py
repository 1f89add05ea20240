"""Generated logs: what the config says is planted, and a day depends on nothing but the config."""

import json
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from data import parts
from data.artifacts import Store, sha256_file
from data.generator import log, tables, write
from data.generator.config import Config
from data.generator.draws import Zipf
from data.generator.plan import make_plan
from data.parts import EVENT_PARTS
from data.schema import EVENT_TYPES, EVENTS, MICROS_PER_DAY, visible_from
from tests.fixtures.artifacts import make_ref

CONFIG = Config(events=60_000, days=30, bots=0.02, canaries=90, canary_day=20, bot_behaviours=("burst", "focused"))


@pytest.fixture(scope="module")
def plan():
    return make_plan(CONFIG)


@pytest.fixture(scope="module")
def events(plan):
    return pa.concat_tables(table for day in range(CONFIG.days) for table in log.day(plan, day))


@pytest.fixture(scope="module")
def bots(plan):
    return tables.bots(plan)


@pytest.fixture(scope="module")
def people(events, bots):
    """Events of people alone."""
    canary = pc.or_(pc.match_substring(events["user_id"], "canary"), pc.match_substring(events["product_id"], "canary"))
    hostile = pc.or_(pc.fill_null(canary, False), pc.is_in(events["user_id"], bots["user_id"].combine_chunks()))
    return events.filter(pc.invert(hostile))


def strings(column):
    return np.array(column.to_pylist(), dtype=object)


def test_as_many_events_as_asked_for_in_the_order_of_a_funnel(people):
    assert len(people) == pytest.approx(CONFIG.events, rel=0.03)
    counts = {pair["values"]: pair["counts"] for pair in pc.value_counts(people["event_type"]).to_pylist()}
    assert set(counts) == set(EVENT_TYPES)
    falling = [counts[name] for name in ("impression", "view", "click", "cart", "purchase", "conversion")]
    assert falling == sorted(falling, reverse=True)
    assert counts["impression"] / len(people) > 0.6


def test_rows_keep_the_contract_and_the_order_of_parts(events):
    assert events.schema.equals(EVENTS, check_metadata=True)
    events.validate(full=True)
    assert len(pc.unique(events["event_id"])) == len(events)
    assert parts.in_order(events).equals(events)


def test_every_day_is_that_day_and_depends_on_the_config_alone(plan, events):
    first = CONFIG.first_micros // MICROS_PER_DAY
    seen = parts.day_of(visible_from(events["ts"].to_numpy(), events["known_at"].to_numpy())) - first
    for day in (0, 11, 29):
        alone = pa.concat_tables(log.day(make_plan(CONFIG), day))
        assert alone.equals(events.filter(pa.array(seen == day)))
    assert len(np.unique(seen)) == CONFIG.days


def test_equal_configs_give_equal_files_and_another_seed_others(tmp_path):
    small = CONFIG.model_copy(update={"days": 4, "canary_day": 2, "events": 4000})
    for name, config, days in (
        ("one", small, None), ("two", small, [2]), ("three", small.model_copy(update={"seed": 1}), [2])
    ):  # fmt: skip
        write.raw(config, tmp_path / name, days)
    name = "events/2024-01-03.parquet"
    one, two, three = (sha256_file(tmp_path / folder / name) for folder in ("one", "two", "three"))
    assert one == two != three
    truth = [sha256_file(tmp_path / folder / "truth/interests.parquet") for folder in ("one", "two", "three")]
    assert truth[0] == truth[1] != truth[2]


def test_a_day_in_slices_is_as_sorted_and_bounded(monkeypatch):
    monkeypatch.setattr("data.generator.config.SLICE_ROWS", 5_000)
    config = Config(events=120_000, days=2, bots=0.02, canaries=30, canary_day=1)
    assert config.slices > 8
    pieces = list(log.day(make_plan(config), 1))
    assert max(map(len, pieces)) < 8_000
    together = pa.concat_tables(pieces)
    assert parts.in_order(together).equals(together)
    assert len(pc.unique(together["event_id"])) == len(together)
    assert pc.sum(pc.match_substring(pc.fill_null(together["product_id"], ""), "canary")).as_py() == 20


@pytest.mark.parametrize("behaviour", ["burst", "focused"])
def test_slices_share_out_what_a_bot_does_in_a_day(monkeypatch, behaviour):
    config = Config(users=2000, events=40_000, days=2, bots=0.1, bot_days=1.0, bot_behaviours=(behaviour,))
    whole = pa.concat_tables(log.day(make_plan(config), 0))
    monkeypatch.setattr("data.generator.config.SLICE_ROWS", 4_000)
    assert config.slices > 5
    sliced = pa.concat_tables(log.day(make_plan(config), 0))
    assert parts.in_order(sliced).equals(sliced)
    bots = tables.bots(make_plan(config))["user_id"].combine_chunks()
    counts = [pc.sum(pc.is_in(table["user_id"], bots)).as_py() for table in (whole, sliced)]
    assert counts[0] == 200 * config.bot_events
    assert counts[1] == pytest.approx(counts[0], rel=0.01)


def test_memory_does_not_grow_with_the_events(monkeypatch, tmp_path):
    monkeypatch.setattr("data.generator.config.SLICE_ROWS", 10_000)

    def peak(events):
        tracemalloc.start()
        plan = make_plan(Config(events=events, days=4))
        for _ in log.day(plan, 2):
            pass
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(800_000) < 1.5 * peak(80_000)


def test_activity_and_popularity_follow_zipf():
    rng = np.random.default_rng(0)
    for skew in (0.6, 1.0, 1.2):
        ranks = Zipf(np.array([3, 2000]), skew).ranks(np.ones(400_000, int), rng.random(400_000, np.float32))
        counts = np.bincount(ranks, minlength=2000)
        assert len(counts) == 2000
        places = np.array([4, 8, 16, 32, 64, 128, 256])
        slope = np.polyfit(np.log(places), np.log([counts[p : p + p // 2].mean() for p in places]), 1)[0]
        assert slope == pytest.approx(-skew, abs=0.06)


def test_users_and_products_of_the_log_are_skewed(people, plan):
    degrees = np.sort(strings_count(people["user_id"]))[::-1]
    slope = np.polyfit(np.log(np.arange(5, 200)), np.log(degrees[5:200]), 1)[0]
    assert slope == pytest.approx(-CONFIG.user_skew, abs=0.15)
    popular = np.sort(strings_count(people["product_id"].drop_null()))[::-1]
    assert popular[:50].sum() > 0.25 * popular.sum()


def strings_count(column):
    return np.array([pair["counts"] for pair in pc.value_counts(column).to_pylist()])


def test_nothing_touches_a_product_before_it_is_known_and_some_come_late(people, plan):
    table = pa.concat_tables(tables.products(plan))
    known = dict(zip(table["product_id"].to_pylist(), table["known_at"].to_pylist(), strict=True))
    about = people.filter(people["product_id"].is_valid())
    assert (about["ts"].to_numpy() > np.array([known[name] for name in about["product_id"].to_pylist()])).all()
    late = (plan.product_day[: CONFIG.products] > 0).mean()
    assert CONFIG.cold_share * 0.8 < late < 3 * CONFIG.cold_share  # a late advertiser makes its products late
    assert (plan.advertiser_day[plan.product_advertiser] <= plan.product_day).all()


def test_people_click_what_their_planted_interests_say(people, plan):
    table = pa.concat_tables(tables.products(plan))
    path = dict(zip(table["product_id"].to_pylist(), table["category"].to_pylist(), strict=True))
    wanted = {}
    for row in pa.concat_tables(tables.interests(plan)).to_pylist():
        wanted.setdefault((row["user_id"], row["slot"]), []).append((row["since"], row["category"]))
    clicks = people.filter(pc.equal(people["event_type"], "click")).to_pylist()
    fine = coarse = 0
    for row in clicks:
        leaves = [
            max((since, leaf) for since, leaf in wanted[row["user_id"], slot] if since <= row["ts"])[1]
            for slot in (0, 1)
        ]
        fine += path[row["product_id"]] in leaves
        coarse += path[row["product_id"]][0] == leaves[0][0]
    assert fine / len(clicks) > 0.75
    assert coarse / len(clicks) > 0.9
    moves = [since for found in wanted.values() for since, _ in sorted(found)[1:]]
    assert len(moves) / len(wanted) == pytest.approx(CONFIG.days / CONFIG.drift_days, rel=0.15)


def test_an_advertiser_sells_in_its_department(plan):
    verticals = pa.concat_tables(tables.advertisers(plan))
    vertical = dict(zip(verticals["advertiser_id"].to_pylist(), verticals["vertical"].to_pylist(), strict=True))
    for row in pa.concat_tables(tables.products(plan)).to_pylist():
        if not row["product_id"].startswith("canary"):
            assert row["category"][0] == vertical[row["advertiser_id"]]


def test_clicks_depend_on_the_slot_as_recorded(people, plan):
    looked = tables.facts(plan)["looked_at"]
    kind, slot = strings(people["event_type"]), people["position"].to_numpy(zero_copy_only=False)
    shown, viewed = (np.bincount(slot[kind == name].astype(int)) for name in ("impression", "view"))
    assert len(np.unique(shown)) == 1  # every slate is full
    rate = viewed / shown
    np.testing.assert_allclose(rate / rate[0], looked, rtol=0.25)


def test_conversions_become_known_with_the_recorded_delay(plan):
    config = CONFIG.model_copy(update={"events": 400_000, "bots": 0.0, "conversion_share": 0.02})
    delays = []
    for day in range(10, 20):
        for table in log.day(make_plan(config), day):
            found = table.filter(pc.equal(table["event_type"], "conversion"))
            delays.append((found["known_at"].to_numpy() - found["ts"].to_numpy()) / MICROS_PER_DAY)
    delay, law = np.concatenate(delays), tables.facts(plan)["delay_days"]
    assert delay.min() > 0
    assert delay.max() <= law["max"]
    expected = law["mean"] * (1 - np.exp(-law["max"] / law["mean"]))
    assert delay.mean() == pytest.approx(expected, rel=0.08)


def test_a_conversion_follows_its_click_of_the_same_request(people):
    steps = {}
    for row in people.to_pylist():
        found = steps.setdefault((row["request_id"], row["product_id"], row["user_id"]), {})
        found[row["event_type"]] = min(row["ts"], found.get(row["event_type"], row["ts"]))  # a slate may show it twice
    converted = [found for found in steps.values() if "conversion" in found]
    assert len(converted) > 50
    assert all(found["impression"] < found["view"] < found["click"] < found["conversion"] for found in converted)


def test_bots_are_as_many_as_planted_and_push_their_targets(events, bots, plan):
    assert len(bots) == round(CONFIG.users * CONFIG.bots)
    behaviour = dict(zip(bots["user_id"].to_pylist(), bots["behaviour"].to_pylist(), strict=True))
    done = [row for row in events.to_pylist() if row["user_id"] in behaviour]
    expected = len(bots) * CONFIG.bot_events * CONFIG.bot_days * CONFIG.days
    assert len(done) == pytest.approx(expected, rel=0.15)
    targets = set(tables.facts(plan)["targets"])
    pushed = np.mean([row["product_id"] in targets for row in done])
    assert pushed == pytest.approx(CONFIG.bot_target_share, abs=0.03)
    spans = {"burst": [], "focused": []}
    for user, name in behaviour.items():
        times = np.array([row["ts"] for row in done if row["user_id"] == user])
        spans[name] += [np.ptp(times[times // MICROS_PER_DAY == day]) for day in np.unique(times // MICROS_PER_DAY)]
    assert max(spans["burst"]) <= CONFIG.bot_minutes * 60e6 < min(spans["focused"])


def test_no_canary_is_readable_before_its_time_though_some_happened_earlier(events, plan):
    named = pc.or_(pc.match_substring(events["user_id"], "canary"), pc.match_substring(events["product_id"], "canary"))
    canaries = events.filter(pc.fill_null(named, False))
    assert len(canaries) == CONFIG.canaries
    seen = visible_from(canaries["ts"].to_numpy(), canaries["known_at"].to_numpy())
    limit = tables.facts(plan)["canary_from"]
    assert (seen >= limit).all()
    assert (canaries["ts"].to_numpy() < limit).sum() >= 2
    both = [("canary" in row["user_id"], "canary" in row["product_id"]) for row in canaries.to_pylist()]
    assert set(both) == {(True, True), (True, False), (False, True)}


def test_an_artifact_describes_itself(tmp_path, events):
    ref = make_ref(Store(tmp_path), "events", lambda out: write.artifact(CONFIG, out))
    assert ref.table(EVENT_PARTS).equals(events)
    summary = ref.json("summary.json")
    assert sum(summary["counts"].values()) == summary["rows"]["events"] == len(events)
    assert summary["first_ts"] == pc.min(events["ts"]).as_py()
    assert ref.table("products.parquet")["product_id"].to_pylist()[-1] == "canaryp19"
    assert json.loads(ref.file("truth/facts.json").read_text())["canary_from"]


def test_raw_files_hold_the_same_rows(tmp_path, plan, events):
    rows = write.raw(CONFIG, tmp_path, [5, 6])
    name = "events/2024-01-06.parquet"
    assert list(rows) == [name, "events/2024-01-07.parquet"]
    found = pq.read_table(tmp_path / name)
    assert len(found) == rows[name]
    assert found.equals(pa.concat_tables(log.day(plan, 5)))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"start": "2024-01-01T01:00:00Z"}, "midnight"),
        ({"advertisers": 3}, "at least 8 advertisers"),
        ({"campaigns": 41}, "at most a campaign"),
        ({"canaries": 1, "canary_day": 60}, "canary_day"),
        ({"fine_share": 0.9}, "fine_share"),
    ],
)
def test_configs_that_cannot_be_met_are_refused(wrong, named):
    with pytest.raises(ValidationError, match=named):
        Config(**wrong)
