"""Vectors and tokens of what no run has seen: bitwise the same in any company, moved by edges, sensible when cold."""

import numpy as np
import pytest

from data.artifacts import Store
from data.errors import BadDataError, UsageError
from data.schema import TOKENS
from encoders.newcomers import NewContent
from graph.store import GraphStore
from hierarchy import unseen
from hierarchy.asof import read_as_of
from hierarchy.unseen import Frozen, embed_new
from tests.fixtures import worlds
from tests.fixtures.artifacts import make_ref
from tests.hierarchy import small_learner as small

TIME = small.before(small.T1)


@pytest.fixture(scope="module", params=[{}, {"gated_fusion": True, "blend": 3.0}], ids=["plain", "gated and blended"])
def frozen(request, tmp_path_factory):
    root = Store(tmp_path_factory.mktemp("store"))
    inputs = small.shop(root)
    learner = small.trained(root, inputs, **request.param)

    def vocabulary(out):
        import pyarrow as pa

        from data.schema import PRIMITIVES
        from hierarchy.levels import learned, primitive_id

        rows, levels = [], []
        for level, (vectors, top) in enumerate(learned(learner), start=1):
            levels.append({"level": level, "k": len(vectors), "top": top, "tau": 0.1})
            rows += [
                dict.fromkeys(PRIMITIVES.names, "")
                | {"level": level, "primitive_id": primitive_id(level, row), "vector": vector.tolist(), "mass": 1.0}
                | {"top_terms": [], "top_products": []}
                for row, vector in enumerate(vectors)
            ]
        out.write_table("primitives.parquet", pa.Table.from_pylist(rows, schema=PRIMITIVES))
        out.write_json("levels.json", levels)
        return {"vocab_version": "v"}

    return Frozen(**inputs, learner=learner, supergraph=make_ref(root, "supergraph", vocabulary))


@pytest.fixture(autouse=True)
def content(monkeypatch):
    """Content of a row by its category, as the small shop's features have it; text encoders are tested elsewhere."""

    def made(features, kind, rows, media_root):
        def of(row):
            return sum(small._direction(part) for part in row.get("category") or ["?"]) + 0.3 * small._direction(
                row[f"{kind}_id"]
            )

        vectors = np.array([of(row) for row in rows], np.float32).reshape(len(rows), small.CONTENT_DIM)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        first = np.arange(small.CONTENT_DIM) < small.CONTENT_DIM // 2
        parts = np.stack([vectors * first, vectors * ~first], axis=1)
        return NewContent(vectors, parts, np.ones((len(rows), 2), bool), {})

    monkeypatch.setattr(unseen, "content_of", made)


ROWS = [
    {"product_id": f"new{n}", "advertiser_id": f"a0{n % 8}", "category": ["Drinks", "Coffee", "Espresso Beans"]}
    for n in range(7)
] + [{"product_id": "bare", "category": None}]
USERS = [[f"u{(7 * n + k) % 60:03d}" for k in range(n)] for n in range(7)] + [["nobody"]]


def test_each_is_bitwise_the_same_alone_in_a_part_and_in_another_order(frozen):
    whole = embed_new(frozen, "product", ROWS, TIME, USERS)
    assert np.allclose(np.linalg.norm(whole.vectors, axis=1), 1, atol=1e-5)
    tokens = whole.tokens.to_pylist()
    for pick in ([5], [7, 2], [6, 5, 4, 3, 2, 1, 0]):
        some = embed_new(frozen, "product", [ROWS[n] for n in pick], TIME, [USERS[n] for n in pick])
        assert np.array_equal(some.vectors, whole.vectors[pick])
        mine = [row for name in some.ids for row in tokens if row["entity_id"] == name]
        assert some.tokens.to_pylist() == mine


def test_tokens_follow_the_contract(frozen):
    found = embed_new(frozen, "product", ROWS, TIME, USERS)
    assert found.tokens.schema.equals(TOKENS, check_metadata=True)
    rows = [row for row in found.tokens.to_pylist() if row["entity_id"] == "new3"]
    assert [(row["level"], row["rank"]) for row in rows] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert sum(row["weight"] for row in rows if row["level"] == 2) == pytest.approx(1, abs=1e-5)
    assert {row["as_of"] for row in rows} == {TIME}
    assert {row["vocab_version"] for row in rows} == {"v"}


def test_edges_move_a_vector_and_unknown_users_are_left_out(frozen):
    cold = embed_new(frozen, "product", ROWS[5:6], TIME).vectors
    warm = embed_new(frozen, "product", ROWS[5:6], TIME, USERS[5:6]).vectors
    stray = embed_new(frozen, "product", ROWS[5:6], TIME, [["nobody", "at all"]]).vectors
    assert not np.array_equal(cold, warm)
    assert np.array_equal(cold, stray)


def test_a_cold_newcomer_lies_among_its_kind(frozen):
    from tests.hierarchy.small_learner import embedded

    root = Store(frozen.graph.path.parents[1])
    inputs = {"graph": frozen.graph, "features": frozen.features, "learner": frozen.learner}
    known = read_as_of(embedded(root, inputs, "unseen"), "product", TIME)
    vector = embed_new(frozen, "product", ROWS[:1], TIME).vectors[0]

    category = {r["product_id"]: r["category"] for r in worlds.world()["products"].to_pylist()}
    nearest = [known.entity_id[int(place)].as_py() for place in np.argsort(-(known.vectors[:, 0] @ vector))[:5]]
    assert sum(category[name][0] == "Drinks" for name in nearest) >= 4


def test_advertisers_too_and_none_at_all(frozen):
    sellers = embed_new(frozen, "advertiser", [{"advertiser_id": "shop", "name": "Shop"}], TIME, [["u001", "u002"]])
    assert sellers.vectors.shape == (1, 16)
    none = embed_new(frozen, "product", [], TIME)
    assert none.vectors.shape == (0, 16)
    assert none.tokens.num_rows == 0


def test_wrong_questions_are_refused_before_anything_is_encoded(frozen):
    known = GraphStore.open(frozen.graph).entity_ids("product")[0].as_py()
    for rows, error, words in (
        ([ROWS[0], ROWS[0]], BadDataError, "'new0' more than once"),
        ([{**ROWS[0], "product_id": known}], BadDataError, "known to the graph already"),
    ):
        with pytest.raises(error, match=words):
            embed_new(frozen, "product", rows, TIME)
    with pytest.raises(UsageError, match="unknown 'user'"):
        embed_new(frozen, "user", [], TIME)
    with pytest.raises(UsageError, match="did you mean 'purchase'"):
        embed_new(frozen, "product", [], TIME, event_type="purchased")
    with pytest.raises(UsageError, match="list of users for each of 1 rows"):
        embed_new(frozen, "product", ROWS[:1], TIME, [])


def test_what_is_new_borrows_from_what_is_like_it(frozen, monkeypatch):
    """Of those with events: with a blend the others are their content alone, without ids and loans."""
    asked = frozen, "product", ROWS[5:7], TIME, USERS[5:7]
    borrowing = embed_new(*asked).vectors
    monkeypatch.setattr(unseen, "lent", lambda config, encoder, table: (encoder, table))
    assert (np.abs(embed_new(*asked).vectors - borrowing).max(axis=1) > 1e-4).all()
