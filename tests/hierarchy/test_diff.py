"""The churn of tokens between two runs of the planted shop: counted in SQL, equal to a count by hand."""

import numpy as np
import pyarrow.compute as pc
import pytest

from data.artifacts import Store
from data.context import RunContext
from data.errors import BadDataError
from data.schema import MICROS_PER_DAY, from_micros, to_micros
from hierarchy import supergraph, tokens
from hierarchy.churn import Change, Coded, bag_change, change, shared_codes, strongest_changed
from hierarchy.diff import Side, diff
from tests.fixtures import worlds
from tests.fixtures.artifacts import make_ref, write_dates
from tests.hierarchy.planted import T0, Shop
from tests.hierarchy.retrained import STAGES, Retrained

FILE = "tokens/"


def with_tokens(store, refs, key):
    inputs = {name: refs[name] for name in ("embeddings", "supergraph")}
    made = make_ref(store, "tokens", lambda out: tokens.run(tokens.Config(), inputs, out, RunContext(threads=1)), key)
    return Side(made, refs["supergraph"], refs["embeddings"])


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    made = Shop(Store(tmp_path_factory.mktemp("diff")), worlds.world())
    made.run("supergraph", supergraph, supergraph.Config(t0=T0), STAGES)
    return made


@pytest.fixture(scope="module")
def first(shop):
    return with_tokens(shop.store, shop.refs, "first")


def retrain(shop, key, aligned=True, **changes):
    made = Retrained(shop, key, **changes)
    made.supergraph(shop.refs if aligned else None)
    return with_tokens(shop.store, made.refs, made.refs["supergraph"].key)


def test_a_turned_retrain_changes_nothing_once_aligned_and_most_without(shop, first, tmp_path):
    found = diff(first, retrain(shop, "turned", seed=21), tmp_path / "spill")
    assert [level["kept"] for level in found["levels"]] == [4, 16]
    for level in found["levels"]:
        assert level["strongest_changed"] == 0
        assert level["bag_change"] < 1e-3
        assert level["raw_strongest_changed"] > 0.99
        assert level["raw_bag_change"] > 0.6
    assert (found["moves"], found["gone"], found["come"]) == ([], 0, 0)

    bare = diff(first, retrain(shop, "bare", aligned=False, seed=21), tmp_path / "spill")
    for level, aligned in zip(bare["levels"], found["levels"], strict=True):
        assert level["strongest_changed"] == level["raw_strongest_changed"] == aligned["raw_strongest_changed"]
    moves = [move for move in bare["moves"] if move["level"] == 2]
    assert len(moves) == 5
    assert moves[0]["was"] != moves[0]["now"]
    assert moves[0]["was_label"] == moves[0]["now_label"], "it is the same interest under another number"


def test_figures_equal_a_count_by_hand(shop, first, tmp_path):
    new = retrain(shop, "noisy", seed=5, noise=0.2, drop=[3])
    as_of = to_micros(T0) + 10 * MICROS_PER_DAY
    found = diff(first, new, tmp_path / "spill", as_of)
    bags = [last_bags(side, as_of) for side in (first, new)]
    assert bags[0].keys() == bags[1].keys()
    for level, told in zip((1, 2), found["levels"], strict=True):
        moved = [max(a[level], key=a[level].get) != max(b[level], key=b[level].get) for a, b in both(bags)]
        changed = [1 - jaccard(a[level], b[level]) for a, b in both(bags)]
        assert told["entities"] == len(moved)
        assert told["strongest_changed"] == pytest.approx(np.mean(moved), abs=6e-5)
        assert told["bag_change"] == pytest.approx(np.mean(changed), abs=6e-5)
        assert 0 < told["strongest_changed"] < 0.5
    assert (found["levels"][1]["retired"], found["levels"][1]["minted"]) == (1, 0)
    by_group = [group for group in found["groups"] if group["level"] == 2]
    assert sum(group["entities"] for group in by_group) == found["levels"][1]["entities"]
    assert {group["entity_type"] for group in by_group} == {"user", "product", "advertiser"}
    assert {group["bucket"] for group in by_group} == {"new"}, "the planted embeddings hold no degrees"
    assert all(move["entities"] >= 1 for move in found["moves"])


def both(bags):
    return [(bags[0][key], bags[1][key]) for key in sorted(bags[0])]


def jaccard(one, other):
    names = {*one, *other}
    return sum(min(one.get(n, 0), other.get(n, 0)) for n in names) / sum(
        max(one.get(n, 0), other.get(n, 0)) for n in names
    )


def last_bags(side, as_of):
    bags, dates = {}, {}
    table = side.tokens.table(FILE)
    for row in table.filter(pc.less_equal(table["as_of"], as_of)).to_pylist():
        key = row["entity_type"], row["entity_id"]
        if row["as_of"] > dates.get(key, 0):
            dates[key], bags[key] = row["as_of"], {}
        bags[key].setdefault(row["level"], {})[row["primitive_id"]] = row["weight"]
    return bags


def test_one_that_begins_later_is_compared_at_its_first_date(shop, first, tmp_path):
    table = first.tokens.table(FILE)
    dates = sorted(set(table["as_of"].to_pylist()))

    def cut(keep, key):
        part = table.filter(keep)
        return first._replace(tokens=make_ref(shop.store, "tokens", lambda out: write_dates(out, FILE, part), key))

    early = cut(pc.less_equal(table["as_of"], dates[1]), "early")
    late = cut(pc.greater(table["as_of"], dates[1]), "late")
    found = diff(early, late, tmp_path / "spill")
    assert found["compared_at"] == str(from_micros(dates[2]).date())
    assert found["gone"] > 0
    with pytest.raises(BadDataError, match="when both have tokens"):
        diff(early, late, tmp_path / "spill", dates[1])


def test_equal_inputs_give_equal_figures(shop, first, tmp_path):
    new = retrain(shop, "again", seed=6, noise=0.2)
    assert diff(first, new, tmp_path / "a") == diff(first, new, tmp_path / "b", memory_limit="200MB")


def test_the_change_of_bags_by_hand():
    old = Coded(np.array([[0, 1], [2, 3], [4, 5]]), np.array([[0.75, 0.25], [0.5, 0.5], [1, 0]], np.float32))
    new = Coded(np.array([[0, 1], [3, 2], [6, 4]]), np.array([[0.75, 0.25], [0.5, 0.5], [0.75, 0.25]], np.float32))
    assert strongest_changed(old, new).tolist() == [False, True, True]
    np.testing.assert_allclose(bag_change(old, new), [0, 0, 1 - 0.25 / 1.75], atol=1e-6)
    assert change(old, new).plus(Change(1, 1, 1.0)).shares("x_") == {
        "x_strongest_changed": 0.75,
        "x_bag_change": round((1 + 1 - 0.25 / 1.75) / 4, 4),
    }
    assert Change().shares() == {"strongest_changed": None, "bag_change": None}
    assert [codes.tolist() for codes in shared_codes(["a", "b"], ["c", "a"])] == [[0, 1], [2, 0]]
