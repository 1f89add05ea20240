"""Logs that break a naive build: giants, hubs, nothing at all, and ids of any bytes."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.schema import EVENTS, MICROS_PER_DAY
from graph import merge
from graph.store import ENGAGED, ENGAGED_THROUGH, NODE_TYPES, GraphStore, Relation
from tests.graph.logs import FIRST, hashes, make, usual, write_log

ODD = ["\0", "a\0b", "🦊", "x" * 10_000, "é", " "]
BOUGHT = Relation("user", "purchase", "product")


def log_of(user, product, ts, seller=None):
    """Purchases at `ts` [us since the first day]; columns of equal lengths."""
    count = len(ts)
    columns = {name: pa.nulls(count, EVENTS.field(name).type) for name in EVENTS.names}
    columns |= {"user_id": user, "product_id": product, "ts": np.asarray(ts) + FIRST * MICROS_PER_DAY}
    columns |= {"known_at": columns["ts"], "advertiser_id": seller or columns["advertiser_id"]}
    columns |= {"event_id": [f"e{n:07d}" for n in range(count)], "event_type": ["purchase"] * count}
    columns |= {"sample_prob": np.ones(count, np.float32), "source": ["test"] * count}
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in EVENTS]
    return pa.Table.from_arrays(arrays, schema=EVENTS)


def built(folder, log, **config):
    return make(folder / "graph", write_log(folder / "events", log, row_group=500), **config)


@pytest.mark.parametrize("chunk_rows", [700, 8_000_000])
def test_a_user_with_half_of_all_events_and_a_product_in_half_of_them(tmp_path, monkeypatch, chunk_rows):
    """The rows are far larger than what is moved at a time."""
    monkeypatch.setattr(merge, "BUCKET", 64)
    rng, count = np.random.default_rng(0), 4_000
    ts = np.sort(rng.integers(0, 3 * MICROS_PER_DAY, count))
    user = np.where(rng.random(count) < 0.5, "giant", np.char.add("u", rng.integers(0, 40, count).astype(str)))
    product = np.where(rng.random(count) < 0.5, "hub", np.char.add("p", rng.integers(0, 40, count).astype(str)))
    store = GraphStore.open(built(tmp_path, log_of(user.tolist(), product.tolist(), ts), chunk_rows=chunk_rows))
    for relation, name, side in ((BOUGHT, "giant", user), (BOUGHT.reverse, "hub", product)):
        csr, (row,) = store.csr(relation), store.encode(relation.src, [name])
        assert csr.rowptr[row + 1] - csr.rowptr[row] == (side == name).sum()
        seen = csr.visible_from[csr.rowptr[row] : csr.rowptr[row + 1]]
        assert (np.diff(seen) >= 0).all()


@pytest.mark.parametrize("count", [0, 1])
def test_no_event_and_one_event(tmp_path, count):
    ref = built(tmp_path, log_of(["u"] * count, ["p0"] * count, [5] * count))
    store = GraphStore.open(ref)
    assert store.csr(BOUGHT).num_edges == count
    assert store.csr(ENGAGED["product"]).num_edges == count
    assert len(ref.json("segments.json")) == count
    assert ref.metrics["edges"]["product-owned_by-advertiser"] == 14
    assert store.num_nodes["user"] == count


def test_no_events_of_the_types_asked_for(tmp_path):
    store = GraphStore.open(built(tmp_path, log_of(["u"], ["p0"], [5]), event_types=("view",)))
    assert store.num_nodes["user"] == 0
    assert store.segments(BOUGHT) == ()


def test_ids_of_any_bytes_are_told_apart(tmp_path):
    users, products = ODD, [*ODD[1:], ODD[0]]
    ref = built(tmp_path, log_of(users, products, [7] * len(ODD), products))
    store = GraphStore.open(ref)
    csr = store.csr(BOUGHT)
    source = np.repeat(np.arange(store.num_nodes["user"]), np.diff(csr.rowptr))
    names = [store.entity_ids(kind) for kind in ("user", "product")]
    pairs = zip(names[0].take(pa.array(source)).to_pylist(), names[1].take(pa.array(csr.col)).to_pylist(), strict=True)
    assert set(pairs) == set(zip(users, products, strict=True))
    assert store.csr(ENGAGED_THROUGH).num_edges == len(ODD)


def test_an_advertiser_without_products_or_events_is_a_node_without_edges(tmp_path):
    store = GraphStore.open(built(tmp_path, usual()))
    (idle,) = store.encode("advertiser", ["idle"])
    assert idle >= 0
    for relation in (ENGAGED["advertiser"].reverse, ENGAGED_THROUGH):
        csr = store.csr(relation)
        assert csr.rowptr[idle] == csr.rowptr[idle + 1]


def test_campaigns_have_edges_of_their_own(tmp_path):
    store, log = GraphStore.open(built(tmp_path, usual())), usual()
    clicks = pa.compute.equal(log["event_type"], "click")
    expected = pa.compute.sum(pa.compute.and_(clicks, log["campaign_id"].is_valid()))
    assert store.csr(Relation("user", "click", "campaign")).num_edges == expected.as_py() > 0


def test_what_lies_in_the_work_folder_from_something_else_does_no_harm(tmp_path):
    events = write_log(tmp_path / "events", usual())
    clean = make(tmp_path / "clean", events)
    work = tmp_path / "graph.work"
    for name in ("nodes", "runs/2023-12-09_2023-12-13", "scan/junk.draft", "spill", "ledger", "pairs"):
        (work / name).mkdir(parents=True)
        (work / name / "unit.json").write_text("{]")
        (work / name / "user.parquet").write_bytes(b"not Parquet")
    assert hashes(make(tmp_path / "graph", events)) == hashes(clean)


def test_a_corrupt_page_of_the_log_is_an_error_not_other_edges(tmp_path):
    events = write_log(tmp_path / "events", usual())
    part = sorted((tmp_path / "events" / "events").glob("*.parquet"))[0]
    data = bytearray(part.read_bytes())
    column = pq.read_metadata(part).row_group(0).column(EVENTS.names.index("ts"))
    data[column.dictionary_page_offset + column.total_compressed_size // 2] ^= 0xFF
    part.write_bytes(bytes(data))
    with pytest.raises(OSError, match=r"(?i)crc|checksum|corrupt"):
        make(tmp_path / "graph", events)


def test_every_node_type_has_a_table(tmp_path):
    ref = built(tmp_path, log_of([], [], []))
    assert {f"nodes/{kind}.parquet" for kind in NODE_TYPES} <= set(ref.names("nodes/"))
