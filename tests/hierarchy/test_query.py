"""Questions to a snapshot: exact neighbours, helpful errors, bags as of a date, and no heavy import."""

import subprocess
import sys

import numpy as np
import pytest

from data import snapshot
from data.artifacts import Store
from data.context import RunContext
from data.errors import BadDataError, UsageError
from data.schema import MICROS_PER_DAY, to_micros
from hierarchy import index, supergraph, tokens
from hierarchy.query import InterestIndex, tokens_of
from tests.fixtures import worlds
from tests.fixtures.artifacts import make_ref
from tests.hierarchy.planted import T0, Shop


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    shop = Shop(Store(tmp_path_factory.mktemp("query")), worlds.world(), heads=2)
    shop.run(
        "supergraph", supergraph, supergraph.Config(t0=T0), ("events", "graph", "features", "learner", "embeddings")
    )
    shop.run("tokens", tokens, tokens.Config(), ("embeddings", "supergraph"))
    shop.run("index", index, index.Config(), ("events", "embeddings", "supergraph"))
    return shop


@pytest.fixture(scope="module")
def published(shop):
    return snapshot.publish(shop.store, shop.refs, "vocabulary", "model", 0)


@pytest.fixture(scope="module")
def asked(shop, published):
    return InterestIndex.open(shop.store, published)


def brute_force(shop, queries, kind, k, without=None):
    """Ids of the best k by the best cosine over the query's vectors and the entity's rows."""
    ref = shop.refs["index"]
    ids = ref.table(f"entities_{kind}.parquet")["entity_id"].to_pylist()
    best: dict = {}
    for entity, score in zip(ids, (queries @ ref.array(f"vectors_{kind}.npy").T).max(axis=0), strict=True):
        best[entity] = max(best.get(entity, -2.0), score)
    best.pop(without, None)
    return sorted(best, key=lambda entity: -best[entity])[:k]


@pytest.mark.parametrize("kind", ["product", "user", "advertiser", "primitive"])
@pytest.mark.parametrize(("asking", "entity"), [("product", "p010"), ("user", "u007"), ("advertiser", "a10")])
def test_neighbours_are_those_of_exact_search_without_the_entity_itself(shop, asked, asking, entity, kind):
    ref = shop.refs["index"]
    ids = ref.table(f"entities_{asking}.parquet")["entity_id"].to_pylist()
    queries = ref.array(f"vectors_{asking}.npy")[[place for place, other in enumerate(ids) if other == entity]]
    hits = asked.by_entity(asking, entity, k=5, kind=kind)
    assert [hit.entity_id for hit in hits] == brute_force(shop, queries, kind, 5, entity if asking == kind else None)
    assert {hit.entity_type for hit in hits} == {kind}
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_on_a_device_answers_are_those_of_the_index(shop, published, asked):
    """ "cpu:0" is searched by torch and the index is not read."""
    there = InterestIndex.open(shop.store, published, "cpu:0")
    for kind in ("product", "user"):
        ours, theirs = (each.by_entity("user", "u007", k=6, kind=kind) for each in (there, asked))
        assert [hit.entity_id for hit in ours] == [hit.entity_id for hit in theirs]
        assert [hit.score for hit in ours] == pytest.approx([hit.score for hit in theirs], abs=1e-6)
        assert "index" not in vars(there.shelf(kind))


def test_a_products_neighbours_are_of_its_type_and_come_with_their_words(shop, asked):
    hit, *others = asked.by_entity("product", "p010", k=4)
    assert hit.as_dict().keys() == {"entity_id", "entity_type", "score", "title", "category", "advertiser_id"}
    row = next(row for row in shop.world["products"].to_pylist() if row["product_id"] == "p010")
    assert {h.category for h in (hit, *others)} == {" > ".join(row["category"])}
    assert row["category"][-1] in hit.title


def test_a_primitive_finds_its_products_and_carries_its_label(asked):
    assert all("Chew Toy" in hit.title for hit in asked.by_primitive("L2-0005", k=4))
    nearest = asked.by_entity("product", "p005", k=1, kind="primitive")[0]
    assert (nearest.entity_id, nearest.title, nearest.category) == ("L2-0005", "Chew Toy", "Pets")


def test_a_vector_of_any_length_finds_the_same(shop, asked):
    vector = shop.direction["Rye Loaf"]
    one, other = asked.by_vector(vector, k=3), asked.by_vector(7 * vector, k=3)
    assert [hit.entity_id for hit in one] == [hit.entity_id for hit in other]
    assert "Rye Loaf" in one[0].title
    assert one[0].score == pytest.approx(other[0].score, abs=1e-6)
    assert one[0].score <= 1.0001


def test_more_answers_than_there_are_things_gives_them_all_once(asked):
    hits = asked.by_entity("user", "u000", k=1000, kind="user")
    assert len(hits) == len({hit.entity_id for hit in hits}) == 59


@pytest.mark.parametrize("vector", [np.zeros(16), np.ones(3), np.full(16, np.nan), np.ones((2, 16))])
def test_a_vector_without_direction_or_of_another_size_is_refused(asked, vector):
    with pytest.raises(BadDataError, match="expected a vector of 16 finite numbers"):
        asked.by_vector(vector)


def test_unknown_ids_and_types_are_answered_with_the_nearest(asked):
    with pytest.raises(BadDataError, match=r"no product 'p0077' in this snapshot: did you mean '(p077|p007)'"):
        asked.by_entity("product", "p0077")
    with pytest.raises(BadDataError, match=r"no primitive 'L9-0000'.*L"):
        asked.by_primitive("L9-0000")
    with pytest.raises(UsageError, match="did you mean 'product'"):
        asked.by_entity("prodct", "p001")
    with pytest.raises(UsageError, match="did you mean 'user'"):
        asked.by_entity("product", "p001", kind="usr")
    with pytest.raises(UsageError, match="k of at least 1"):
        asked.by_entity("product", "p001", k=0)


def test_a_text_is_asked_about_as_a_product_without_a_past(shop, asked, monkeypatch):
    import encoders.encode

    said = []

    def content(features, texts):
        said.append((features.stage, texts))
        return shop.direction["Green Tea"][None]

    monkeypatch.setattr(encoders.encode, "embed_texts", content)
    hits = asked.by_text("something green to drink", k=4)
    assert said == [("features", ["something green to drink"])]
    assert all("Green Tea" in hit.title for hit in hits)
    assert asked.by_text("the same", k=1, kind="primitive")[0].title == "Green Tea"


def test_a_bag_is_the_newest_not_after_the_date(shop, published):
    late = tokens_of(shop.store, published, "user", "u003")
    assert late[0].keys() == {
        "level", "rank", "primitive_id", "label", "weight", "residual", "as_of", "vocab_version",
    }  # fmt: skip
    assert [(row["level"], row["rank"]) for row in late] == [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 3)]
    assert {row["as_of"] for row in late} == {shop.refs["embeddings"].metrics["last_as_of"]}
    first = to_micros(T0)
    between = tokens_of(shop.store, published, "user", "u003", as_of=first + 13 * MICROS_PER_DAY)
    assert {row["as_of"] for row in between} == {first + 7 * MICROS_PER_DAY}
    assert tokens_of(shop.store, published, "user", "u003", as_of=first - 1) == []


def test_a_bag_is_found_in_every_row_group_of_the_file(shop, monkeypatch):
    monkeypatch.setattr(tokens, "_ROWS", 40)
    made = make_ref(
        shop.store, "tokens", lambda out: tokens.run(tokens.Config(), shop.refs, out, RunContext(threads=1)), "small"
    )
    small = snapshot.Snapshot("small", {"tokens": "small", "supergraph": shop.key}, "", "", 0)
    table = made.table("tokens/", columns=["entity_type", "entity_id"])
    pairs = sorted(set(zip(table["entity_type"].to_pylist(), table["entity_id"].to_pylist(), strict=True)))
    for kind, entity in pairs[::7]:
        assert len(tokens_of(shop.store, small, kind, entity)) == 6


def test_the_bag_of_an_unknown_entity_is_an_error_that_helps(shop, published):
    with pytest.raises(BadDataError, match=r"no user 'u0033' in this snapshot: did you mean 'u0(03|33)'"):
        tokens_of(shop.store, published, "user", "u0033")
    with pytest.raises(BadDataError, match="no advertiser 'p003'"):
        tokens_of(shop.store, published, "advertiser", "p003")
    with pytest.raises(UsageError, match="unknown entity type 'campaign'"):
        tokens_of(shop.store, published, "campaign", "c0")


def test_asking_imports_neither_torch_nor_pandas_nor_prefect(shop, published):
    code = (
        "import sys\nfrom data import snapshot\nfrom data.artifacts import Store\nfrom hierarchy import query\n"
        f"store = Store({str(shop.store.root)!r})\npublished = snapshot.load(store)\n"
        "assert query.InterestIndex.open(store, published).by_entity('product', 'p001', k=3)\n"
        "assert query.tokens_of(store, published, 'user', 'u001')\n"
        "print(sorted({'torch', 'pandas', 'prefect', 'transformers', 'sklearn', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
