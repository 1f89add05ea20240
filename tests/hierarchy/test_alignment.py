"""Public ids over retrains of the planted shop: the same interest keeps its id, and no id ever means two interests."""

import numpy as np
import pyarrow.compute as pc
import pytest

from data.artifacts import Store
from data.schema import to_micros
from hierarchy import supergraph
from hierarchy.anchors import anchors
from hierarchy.asof import read_as_of
from hierarchy.kmeans import unit
from hierarchy.levels import learned, published
from hierarchy.public_ids import ID_MAP
from tests.fixtures import worlds
from tests.fixtures.artifacts import make_ref, write_dates
from tests.hierarchy.planted import DIM, T0, Shop
from tests.hierarchy.retrained import STAGES, Retrained


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    made = Shop(Store(tmp_path_factory.mktemp("alignment")), worlds.world())
    made.run("supergraph", supergraph, supergraph.Config(t0=T0), STAGES)
    return made


def labels(ref, level=2):
    rows = ref.table("primitives.parquet").to_pylist()
    return {row["primitive_id"]: row["label"] for row in rows if row["level"] == level}


def fates(ref, status):
    rows = ref.table("id_map.parquet").to_pylist()
    return [row for row in rows if row["status"] == status]


def stranger(shop):
    """A direction that no planted interest has."""
    known = np.concatenate([vectors for vectors, _ in learned(shop.refs["learner"])])
    _, _, axes = np.linalg.svd(known)
    return unit(axes[-1:].astype(np.float32))


def test_a_first_vocabulary_is_numbered_from_zero(shop):
    first = shop.refs["supergraph"]
    assert first.json("ids.json") == {"free": {"1": 4, "2": 16}, "retired": {}}
    assert first.json("churn.json")["previous"] is None
    table = first.table("id_map.parquet")
    assert table.schema.equals(ID_MAP, check_metadata=True)
    assert set(table["status"].to_pylist()) == {"minted"}
    assert table["new_id"].to_pylist() == first.table("primitives.parquet")["primitive_id"].to_pylist()


def test_a_turned_and_permuted_retrain_keeps_every_id_and_no_bag_changes(shop):
    again = Retrained(shop, "turned", seed=21)
    made = again.supergraph(shop.refs)
    for level in (1, 2):
        assert labels(made, level) == labels(shop.refs["supergraph"], level)
    churn = made.json("churn.json")
    assert churn["procrustes"]["cosine"] == pytest.approx(1, abs=1e-5)
    assert churn["procrustes"]["residual"] < 2e-3
    for level, size in zip(churn["levels"], (4, 16), strict=True):
        assert [level[name] for name in ("kept", "minted", "retired")] == [size, 0, 0]
        assert level["strongest_changed"] == 0
        assert level["bag_change"] < 1e-3
        assert level["raw_strongest_changed"] > 0.99, "without alignment rows mean something else"
    kept = {row["row"]: row for row in fates(made, "kept") if row["level"] == 2}
    assert [kept[row]["old_id"] for row in range(16)] == [f"L2-{place:04d}" for place in again.order[1]]
    assert {row["reason"] for row in kept.values()} == {"under the same parent"}
    assert min(row["likeness"] for row in kept.values()) > 0.99
    assert made.metrics["churn"] == churn


def test_ids_follow_meaning_through_noise_and_the_tree_follows_the_ids(shop):
    made = Retrained(shop, "noisy", seed=2, noise=0.05).supergraph(shop.refs)
    assert labels(made) == labels(shop.refs["supergraph"])
    assert parents(made) == parents(shop.refs["supergraph"])
    edges = made.table("primitive_edges.parquet").to_pylist()
    assert {edge["source"] for edge in edges} <= set(labels(made, 1)) | set(labels(made, 2))


def parents(ref):
    return {row["primitive_id"]: row["parent_id"] for row in ref.table("primitives.parquet").to_pylist()}


def test_lost_and_new_interests_are_retired_and_minted_and_nothing_is_used_twice_over_three_runs(shop):
    second = Retrained(shop, "second", seed=3, drop=[5, 9], extra=stranger(shop))
    made = second.supergraph(shop.refs)
    assert {row["old_id"] for row in fates(made, "retired")} == {"L2-0005", "L2-0009"}
    (minted,) = fates(made, "minted")
    assert (minted["new_id"], minted["row"], minted["reason"]) == ("L2-0016", 14, "none alike")
    assert minted["likeness"] < 0.5
    assert made.json("ids.json") == {"free": {"1": 4, "2": 17}, "retired": {"2": ["L2-0005", "L2-0009"]}}
    assert published(made)[1].ids.to_pylist()[14] == "L2-0016"

    third = Retrained(shop, "third", seed=4)  # the lost interests are back, the new one is gone
    back = third.supergraph(second.refs)
    assert [row["old_id"] for row in fates(back, "retired")] == ["L2-0016"]
    assert [row["new_id"] for row in fates(back, "minted")] == ["L2-0017", "L2-0018"]
    assert back.json("ids.json")["free"] == {"1": 4, "2": 19}
    assert back.json("ids.json")["retired"] == {"2": ["L2-0005", "L2-0009", "L2-0016"]}
    assert len(set(labels(back))) == 16
    assert not set(labels(back)) & {"L2-0005", "L2-0009", "L2-0016"}
    same = {identity for identity in labels(back) if identity < "L2-0016"}
    first = labels(shop.refs["supergraph"])
    assert all(labels(back)[identity] == first[identity] for identity in same)


def test_a_split_keeps_one_id_and_mints_the_other_and_a_merge_retires_one(shop):
    base = learned(shop.refs["learner"])[1][0][3]
    twin = unit((base + 0.2 * np.random.default_rng(0).normal(size=DIM))[None].astype(np.float32))
    split = Retrained(shop, "split", seed=5, extra=twin)
    made = split.supergraph(shop.refs)
    (minted,) = fates(made, "minted")
    assert (minted["nearest_id"], fates(made, "retired")) == ("L2-0003", [])
    merged = Retrained(shop, "merged", seed=6)
    back = merged.supergraph(split.refs)
    (retired,) = fates(back, "retired")
    assert {retired["old_id"], retired["nearest_id"]} == {"L2-0003", "L2-0016"}
    assert retired["reason"] in {"none alike", "counterpart taken"}


def test_greedy_names_as_the_exact_assignment_does(shop):
    again = Retrained(shop, "greedy", seed=7, noise=0.05)
    exact, quick = again.supergraph(shop.refs), again.supergraph(shop.refs, "-limit", exact_limit=0)
    assert quick.manifest["files"]["id_map.parquet"]["sha256"] == exact.manifest["files"]["id_map.parquet"]["sha256"]
    assert quick.metrics["vocab_version"] == exact.metrics["vocab_version"]


def test_equal_inputs_give_equal_files_and_the_learner_is_untouched(shop):
    again = Retrained(shop, "twice", seed=8, noise=0.05)
    files = [again.supergraph(shop.refs, name).manifest["files"] for name in ("-a", "-b")]
    assert {name: f["sha256"] for name, f in files[0].items()} == {name: f["sha256"] for name, f in files[1].items()}
    for level, planted in zip(published(again.refs["supergraph"]), again.vectors, strict=True):
        assert level.vectors.tobytes() == planted.tobytes(), "rows stay in the learner's order"


def test_without_a_common_entity_everything_is_minted_anew(shop):
    again = Retrained(shop, "strange", seed=9)
    other = again.table.set_column(0, "entity_id", pc.binary_join_element_wise("x", again.table["entity_id"], "-"))
    other = other.cast(again.table.schema)
    unknown = make_ref(shop.store, "embeddings", lambda out: write_dates(out, "embeddings/", other), "unknown")
    made = again.supergraph({**shop.refs, "embeddings": unknown})
    assert sorted(labels(made)) == [f"L2-{number:04d}" for number in range(16, 32)]
    assert {row["reason"] for row in made.table("id_map.parquet").to_pylist()} == {"no entity in common"}
    assert len(fates(made, "retired")) == 20


def test_a_level_that_goes_is_retired_and_one_that_comes_is_minted(shop):
    again = Retrained(shop, "shallow", seed=10)

    def write(out):
        out.adopt(again.refs["learner"], "model.safetensors")
        out.write_json("learner.json", {"config": {"levels": [{"k": 4, "top": 2}]}})

    again.refs["learner"] = make_ref(shop.store, "learner", write, "one-level")
    shallow = again.supergraph(shop.refs)
    assert {row["reason"] for row in fates(shallow, "retired")} == {"level dropped"}
    deep = Retrained(shop, "deep", seed=11)
    made = deep.supergraph(again.refs)
    assert sorted(labels(made)) == [f"L2-{number:04d}" for number in range(16, 32)]
    assert labels(made, 1) == labels(shop.refs["supergraph"], 1)


def test_anchors_are_the_last_vectors_by_then_and_can_be_fewer(shop):
    time = to_micros(T0)
    entities = {kind: read_as_of(shop.refs["embeddings"], kind, time) for kind in ("user", "product")}
    found = anchors(shop.refs["embeddings"], entities, time, 10_000)
    assert [part.kind for part in found] == ["product", "user"]
    for part in found:
        assert part.old.tobytes() == part.new.tobytes()
        assert part.weight.sum() == pytest.approx(1)
    few = anchors(shop.refs["embeddings"], entities, time, 7)
    assert all(0 < len(part.weight) <= 7 for part in few)
    assert anchors(shop.refs["embeddings"], entities, time - 1, 10_000) == []


def test_several_heads_are_one_bag_and_one_direction(tmp_path):
    made = Shop(Store(tmp_path), worlds.world(), heads=2)
    made.run("supergraph", supergraph, supergraph.Config(t0=T0), STAGES)
    again = Retrained(made, "heads", seed=12).supergraph(made.refs)
    assert labels(again) == labels(made.refs["supergraph"])
    assert [level["strongest_changed"] for level in again.json("churn.json")["levels"]] == [0, 0]
