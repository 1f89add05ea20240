import numpy as np
import pyarrow as pa
import pytest

from data import synthetic
from data.artifacts import Store, sha256_file
from data.context import RunContext
from graph import build
from graph.store import FORWARD, IN_CATEGORY, NODE_TYPES, OWNED_BY, GraphStore, Relation
from tests.fixtures.artifacts import make_ref

BOUGHT = Relation("user", "purchase", "product")
EVENTS = [
    ("ann", "apple", "purchase", 10, 10),
    ("ann", "soap", "purchase", 20, 25),
    ("bob", "apple", "purchase", 15, 40),
    ("bob", "bread", "impression", 16, 16),
    ("ann", "@mill", "conversion", 30, 30),
    ("cid", "novel", "purchase", 3, 3),
]


def hashes(ref):
    return {name: sha256_file(ref.path / name) for name in ref.manifest["files"]}


def triples(store, relation):
    """(source id, target id, time, visible_from) of every edge."""
    csr = store.csr(relation)
    src = np.repeat(np.arange(len(csr.rowptr) - 1), np.diff(csr.rowptr))
    names = [store.entity_ids(kind).to_pylist() for kind in (relation.src, relation.dst)]
    columns = src.tolist(), csr.col.tolist(), csr.times.tolist(), csr.visible_from.tolist()
    return {(names[0][s], names[1][d], time, seen) for s, d, time, seen in zip(*columns, strict=True)}


def test_edges_carry_when_they_happened_and_when_they_can_be_read(graph_of):
    store = graph_of(EVENTS)
    assert triples(store, BOUGHT) == {
        ("ann", "apple", 10, 11), ("ann", "soap", 20, 25), ("bob", "apple", 15, 40), ("cid", "novel", 3, 4),
    }  # fmt: skip
    assert triples(store, Relation("user", "impression", "product")) == {("bob", "bread", 16, 17)}


def test_events_without_a_product_point_at_advertiser_and_campaign(graph_of):
    store = graph_of(EVENTS)
    assert triples(store, Relation("user", "conversion", "advertiser")) == {("ann", "mill", 30, 31)}
    assert triples(store, Relation("user", "conversion", "campaign")) == {("ann", "spring", 30, 31)}
    assert store.csr(Relation("user", "purchase", "advertiser")).num_edges == 0


def test_catalogue_links_and_category_tree(graph_of):
    store = graph_of(EVENTS)
    assert {(a, b) for a, b, _, _ in triples(store, OWNED_BY)} == {
        ("apple", "farm"), ("pear", "farm"), ("bread", "mill"), ("soap", "mill"),
    }  # fmt: skip
    assert ("bread", "Food > Bakery > Bread", 0, 0) in triples(store, IN_CATEGORY)
    assert triples(store, Relation("category", "child_of", "category")) == {
        ("Food > Fruit", "Food", 0, 0),
        ("Food > Bakery", "Food", 0, 0),
        ("Food > Bakery > Bread", "Food > Bakery", 0, 0),
    }


def test_a_node_is_known_from_the_first_row_that_names_it(graph_of):
    store = graph_of(EVENTS)
    known = dict(zip(store.entity_ids("user").to_pylist(), store.known_at("user").tolist(), strict=True))
    assert known == {"zoe": 3, "cid": 4, "ann": 11, "bob": 17}
    products = dict(zip(store.entity_ids("product").to_pylist(), store.known_at("product").tolist(), strict=True))
    assert products["novel"] == 4  # bought at 3, in the catalogue from 5
    assert store.encode("advertiser", ["farm", "mill"]).tolist() == [0, 1]


@pytest.mark.parametrize("relation", FORWARD, ids="-".join)
def test_reverse_edges_are_the_same_edges(graph_of, relation):
    store = graph_of(EVENTS)
    turned = {(b, a, time, seen) for a, b, time, seen in triples(store, relation.reverse)}
    assert triples(store, relation) == turned


def test_permuted_events_give_the_same_bytes(graph_ref):
    shuffled = [EVENTS[i] for i in (4, 2, 0, 5, 3, 1)]
    one, other = hashes(graph_ref(EVENTS)), hashes(graph_ref(shuffled))
    for found in (one, other):
        found.pop("segments.json")  # it names the log's hash, and event ids follow the order here
    assert one == other


def test_batch_size_changes_nothing(graph_ref):
    assert hashes(graph_ref(EVENTS)) == hashes(graph_ref(EVENTS, chunk_rows=2))


def test_deleting_later_events_renumbers_and_reorders_nothing(graph_of):
    later = [("new", "pear", "purchase", 60, 60), ("ann", "apple", "purchase", 61, 61), ("bob", "soap", "cart", 62, 70)]
    long, short = graph_of(EVENTS + later), graph_of(EVENTS)
    for kind in NODE_TYPES:
        count = short.num_nodes[kind]
        assert long.entity_ids(kind).slice(0, count) == short.entity_ids(kind)
        np.testing.assert_array_equal(long.known_at(kind)[:count], short.known_at(kind))
    for relation in FORWARD:
        if short.csr(relation).num_edges:
            assert {edge for edge in triples(long, relation) if edge[3] <= 50} == triples(short, relation)


def test_only_the_event_types_asked_for_become_edges(graph_of):
    store = graph_of(EVENTS, event_types=("impression",))
    assert store.csr(BOUGHT).num_edges == 0
    assert store.csr(Relation("user", "impression", "product")).num_edges == 1


def test_a_sampled_event_stands_for_one_over_its_probability(store, world):
    events = world["events"].slice(0, 40)
    column = events.schema.get_field_index("sample_prob")
    kept = events.set_column(column, events.schema.field(column), pa.array([0.25] * 40, pa.float32()))

    ref = make_ref(store, "events", lambda out: synthetic.write_events(world | {"events": kept}, out))
    run = make_ref(store, "graph", lambda out: build.run(build.Config(), {"events": ref}, out, RunContext(threads=1)))
    assert set(GraphStore.open(run).csr(Relation("user", "impression", "product")).weights.tolist()) == {4.0}


def test_the_synthetic_world_becomes_a_graph_with_degrees(store: Store, synthetic_events, world):
    run = lambda out: build.run(build.Config(), {"events": synthetic_events}, out, RunContext(threads=1))  # noqa: E731
    ref = make_ref(store, "graph", run)
    bought = sum(kind == "purchase" for kind in world["events"]["event_type"].to_pylist())
    assert ref.metrics["edges"]["user-purchase-product"] == bought
    assert ref.metrics["nodes"]["product"] == 80
    listed = {row["relation"]: row["num_edges"] for row in ref.json("edges.json") if row["src"] == "product"}
    assert listed["owned_by"] == 80
    users = ref.json("statistics.json")["node_types"]["user"]
    assert users["nodes"] == 60
    assert users["p50"] <= users["max"]
