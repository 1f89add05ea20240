"""Operations on interests in the planted shop, against plain loops over its tables."""

import subprocess
import sys
from dataclasses import asdict

import numpy as np
import pytest

from data import snapshot
from data.artifacts import Store
from data.errors import BadDataError, UsageError
from hierarchy import index, supergraph, tokens
from hierarchy.interests import Interests
from hierarchy.query import tokens_of
from tests.fixtures import worlds
from tests.hierarchy.planted import DEPARTMENTS, T0, TYPES, Shop

INPUTS = ("events", "graph", "features", "learner", "embeddings")
IDS = {leaf: f"L2-{place:04d}" for place, (_, leaf) in enumerate(TYPES)}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    shop = Shop(Store(tmp_path_factory.mktemp("interests")), worlds.world(), heads=2)
    shop.run("supergraph", supergraph, supergraph.Config(t0=T0), INPUTS)
    shop.run("tokens", tokens, tokens.Config(), ("embeddings", "supergraph"))
    shop.run("index", index, index.Config(), ("events", "embeddings", "supergraph"))
    return shop


@pytest.fixture(scope="module")
def published(shop):
    return snapshot.publish(shop.store, shop.refs, "vocabulary", "model", 0)


@pytest.fixture(scope="module")
def asked(shop, published):
    return Interests(shop.store, published)


@pytest.fixture(scope="module")
def bags(shop, published):
    """Newest bag of every user and product, one entity at a time: kind -> id -> primitive -> weight."""
    ids = {
        "user": shop.nodes.entity_ids("user").to_pylist(),
        "product": shop.refs["index"].table("entities_product.parquet")["entity_id"].to_pylist(),
    }
    return {
        kind: {
            entity: {row["primitive_id"]: row["weight"] for row in tokens_of(shop.store, published, kind, entity)}
            for entity in names
        }
        for kind, names in ids.items()
    }


def ranked(scores, k):
    return sorted(((entity, score) for entity, score in scores.items()), key=lambda pair: (-pair[1], pair[0]))[:k]


def test_ids_and_labels_name_an_interest_and_mistakes_are_answered_with_the_nearest(asked):
    assert asked.find("L2-0005").label == "Chew Toy"
    assert asked.find("Chew Toy") is asked.find("chew toy") is asked.find("L2-0005")
    with pytest.raises(BadDataError, match=r"no interest 'Chew Tie': did you mean L2-0005 \(Chew Toy\)"):
        asked.find("Chew Tie")
    with pytest.raises(BadDataError, match="no interest 'Pets' at level 2"):
        asked.find("Pets", level=2)
    with pytest.raises(BadDataError, match="name an id such as L1-0000"):
        asked.find("§§§")


def test_a_label_of_two_levels_needs_one(shop, published):
    asked = Interests(shop.store, published)
    one, two = asked.find("L1-0000"), asked.find("L2-0003")
    asked.all["L2-0003"] = type(two)(**{**asdict(two), "label": one.label})
    with pytest.raises(
        UsageError, match=f"'{one.label}' is the label of L1-0000 and L2-0003: name the id, or the level"
    ):
        asked.find(one.label)
    assert asked.find(one.label, level=2).primitive_id == "L2-0003"


def test_nearest_interests_of_an_advertiser_by_vector_and_by_tokens(shop, published, asked):
    shelf = asked.index.shelf("advertiser")
    advertiser = shelf.ids[3]
    vector = shelf.vectors[3]
    expected = ranked({IDS[leaf]: float(vector @ shop.direction[leaf]) for _, leaf in TYPES}, 3)
    hits = asked.of_entity("advertiser", advertiser, k=3, level=2)
    assert [hit.entity_id for hit in hits] == [name for name, _ in expected]
    np.testing.assert_allclose([hit.score for hit in hits], [score for _, score in expected], atol=1e-6)
    bag = tokens_of(shop.store, published, "advertiser", advertiser)
    hits = asked.of_entity("advertiser", advertiser, by="tokens", level=1)
    assert [(hit.entity_id, hit.score) for hit in hits] == [
        (row["primitive_id"], row["weight"]) for row in bag if row["level"] == 1
    ]
    assert hits[0].title in DEPARTMENTS


def test_a_user_with_two_heads_is_as_near_as_the_nearer_one(shop, asked):
    shelf = asked.index.shelf("user")
    heads = shelf.vectors[shelf.rows("u004")]
    assert len(heads) == 2
    for hit in asked.of_entity("user", "u004", level=2, k=16):
        leaf = TYPES[int(hit.entity_id[3:])][1]
        assert hit.score == pytest.approx(float((heads @ shop.direction[leaf]).max()), abs=1e-6)


@pytest.mark.parametrize("kind", ["user", "product"])
def test_entities_of_an_interest_are_those_whose_bags_hold_most_of_it(asked, bags, kind):
    expected = ranked({entity: bag["L2-0005"] for entity, bag in bags[kind].items() if "L2-0005" in bag}, 6)
    hits = asked.entities("Chew Toy", kind, k=6)
    assert [(hit.entity_id, hit.score) for hit in hits] == expected
    assert {hit.entity_type for hit in hits} == {kind}


def test_entities_of_an_interest_by_vector_are_its_neighbours(asked):
    hits = asked.entities("L2-0005", "product", by="vector", k=4)
    assert hits == asked.index.by_primitive("L2-0005", 4)
    assert asked.entities("L1-0001", "advertiser", k=3)[0].entity_type == "advertiser"


@pytest.mark.parametrize("rank", ["min", "product"])
def test_users_between_two_interests_hold_both(asked, bags, rank):
    one, two = "L2-0004", "L2-0005"
    weights = {user: (bag[one], bag[two]) for user, bag in bags["user"].items() if one in bag and two in bag}
    assert len(weights) > 3
    score = min if rank == "min" else np.prod
    expected = ranked({user: float(score(held)) for user, held in weights.items()}, 4)
    hits = asked.between(one, two, rank=rank, k=4)
    assert [hit.entity_id for hit in hits] == [user for user, _ in expected]
    assert [hit.score for hit in hits] == pytest.approx([found for _, found in expected])
    assert [hit.weights for hit in hits] == [weights[hit.entity_id] for hit in hits]
    assert asked.between(two, one, rank=rank, k=4)[0].weights == weights[hits[0].entity_id][::-1]


def test_halfway_between_two_interests_lies_their_midpoint(shop, asked):
    halfway = shop.direction["Dog Biscuits"] + shop.direction["Chew Toy"]
    assert asked.midpoint("Dog Biscuits", "Chew Toy", k=5) == asked.index.by_vector(halfway, 5, "user")


def test_nearest_interests_of_an_interest_by_cosine_and_by_relation(shop, asked):
    expected = ranked(
        {
            IDS[leaf]: float(shop.direction["Rye Loaf"] @ shop.direction[leaf])
            for _, leaf in TYPES
            if leaf != "Rye Loaf"
        },
        3,
    )
    hits = asked.near("Rye Loaf", k=3)
    assert [hit.entity_id for hit in hits] == [name for name, _ in expected]
    assert [hit.score for hit in hits] == pytest.approx([score for _, score in expected], abs=1e-6)
    assert asked.near("Rye Loaf", level=1)[0].title == "Bakery"
    edges = shop.refs["supergraph"].table("primitive_edges.parquet").to_pylist()
    for relation in ("then_purchase", "co_purchase", "parent"):
        own = [e for e in edges if e["relation"] == relation and e["source"] == IDS["Rye Loaf"]]
        assert [(hit.entity_id, hit.score) for hit in asked.near("Rye Loaf", relation)] == [
            (edge["target"], edge["weight"]) for edge in own
        ]
    with pytest.raises(UsageError, match="did you mean 'then_purchase'"):
        asked.near("Rye Loaf", "then_purchas")


def test_the_path_leads_up_and_down(asked):
    down = asked.path("Pets")
    assert [child.label for child in down.ancestors] == []
    assert {child.label for child in down.children} == {leaf for dept, leaf in TYPES if dept == "Pets"}
    assert {sibling.label for sibling in down.siblings} == set(DEPARTMENTS) - {"Pets"}
    assert down.parents == []
    up = asked.path("Chew Toy")
    assert [above.label for above in up.ancestors] == ["Pets"]
    assert {sibling.label for sibling in up.siblings} == {leaf for dept, leaf in TYPES if dept == "Pets"} - {"Chew Toy"}
    assert [child.mass for child in down.children] == sorted((child.mass for child in down.children), reverse=True)
    assert up.children == []
    assert up.parents[0].title == "Pets"
    assert sum(hit.score for hit in up.parents) == pytest.approx(1, abs=1e-5)


def test_distance_is_that_of_the_members_by_plain_loops(shop, asked, bags):
    found = asked.distance("Dog Biscuits", "Chew Toy")
    vectors = {
        row["product_id"]: shop.product_vector(row["category"], row["product_id"])
        for row in shop.world["products"].to_pylist()
    }
    sets = [
        {product: bag[name] for product, bag in bags["product"].items() if name in bag}
        for name in (IDS["Dog Biscuits"], IDS["Chew Toy"])
    ]
    pairs = [(wa * wb, float(vectors[a] @ vectors[b])) for a, wa in sets[0].items() for b, wb in sets[1].items()]
    total = sum(weight for weight, _ in pairs)
    assert found.members == tuple(map(len, sets))
    assert found.pairwise == pytest.approx(sum(weight * cosine for weight, cosine in pairs) / total, abs=1e-5)
    means = [np.sum([weight * vectors[p] for p, weight in held.items()], axis=0) for held in sets]
    norms = [np.linalg.norm(mean) for mean in means]
    assert found.centroid == pytest.approx(float(means[0] @ means[1] / norms[0] / norms[1]), abs=1e-5)
    everyone = set(sets[0]) | set(sets[1])
    weights = np.array([[held.get(product, 0.0) for held in sets] for product in everyone])
    assert found.overlap == pytest.approx(weights.min(axis=1).sum() / weights.max(axis=1).sum(), abs=1e-6)
    assert found.cosine == pytest.approx(float(shop.direction["Dog Biscuits"] @ shop.direction["Chew Toy"]), abs=1e-6)
    back = asked.distance("Chew Toy", "Dog Biscuits")
    assert back.flow == {relation: (b, a) for relation, (a, b) in found.flow.items()}
    far = asked.distance("Dog Biscuits", "Apple Tart")
    assert far.centroid < found.centroid


def test_flow_between_two_interests_is_that_of_the_links(shop, asked):
    edges = shop.refs["supergraph"].table("primitive_edges.parquet").to_pylist()
    one, two = IDS["Dog Biscuits"], IDS["Chew Toy"]
    weight = {(e["relation"], e["source"], e["target"]): e["weight"] for e in edges if e["relation"] != "parent"}
    relations = {relation for relation, *ends in weight if ends in ([one, two], [two, one])}
    assert {"co_purchase", "then_purchase"} <= relations
    assert asked.distance(one, two).flow == {
        relation: (weight.get((relation, one, two), 0.0), weight.get((relation, two, one), 0.0))
        for relation in relations
    }
    assert asked.distance("Pets", "Chew Toy").flow == {}, "links of parents are no flow"


def test_users_too_are_members_and_heads_share_their_weight(asked):
    found = asked.distance("Dog Biscuits", "Chew Toy", "user")
    assert min(found.members) > 3
    assert -1 <= found.pairwise <= found.centroid <= 1.0001


def test_an_interest_that_nobody_holds_has_no_members(shop, published, asked, monkeypatch):
    import hierarchy.interests

    monkeypatch.setattr(hierarchy.interests, "holders", lambda *_: {})
    found = asked.distance("Dog Biscuits", "Chew Toy")
    assert (found.members, found.centroid, found.pairwise, found.overlap) == ((0, 0), None, None, None)
    assert asked.between("Dog Biscuits", "Chew Toy") == []


def test_wrong_words_are_answered(asked):
    for call, words in (
        (lambda: asked.between("L2-0001", "L2-0002", kind="usr"), "unknown entity type 'usr': did you mean 'user'"),
        (lambda: asked.between("L2-0001", "L2-0002", rank="max"), "unknown rank 'max'"),
        (lambda: asked.between("L2-0001", "L2-0001"), "expected two interests, got L2-0001 twice"),
        (lambda: asked.entities("L2-0001", by="magic"), "by vector or by tokens, got 'magic'"),
        (lambda: asked.near("L2-0001", k=0), "k of at least 1"),
    ):
        with pytest.raises(UsageError, match=words):
            call()
    with pytest.raises(BadDataError, match="no advertiser 'a999'"):
        asked.of_entity("advertiser", "a999")


def test_asking_imports_neither_torch_nor_pandas_nor_scipy(shop, published):
    code = (
        "import sys\nfrom data import snapshot\nfrom data.artifacts import Store\n"
        "from hierarchy.interests import Interests\n"
        f"store = Store({str(shop.store.root)!r})\nasked = Interests(store, snapshot.load(store))\n"
        "assert asked.between('L2-0004', 'L2-0005') and asked.distance('Pets', 'Chew Toy') and asked.path('Pets')\n"
        "assert asked.of_entity('user', 'u001', by='tokens') and asked.near('Pets')\n"
        "print(sorted({'torch', 'pandas', 'prefect', 'transformers', 'sklearn', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
