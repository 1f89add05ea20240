"""A later vocabulary goes on from the published one before it, and the command line tells what that changed."""

import json

import pytest

from data import snapshot
from data.artifacts import Store
from data.errors import BadDataError, UsageError
from flows import token_diff, vocabularies
from flows.__main__ import app
from tests.fixtures.vocabularies import copy_shop, publish

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return copy_shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def grown(shop):
    """A store with two vocabularies, a fortnight apart."""
    store = Store(shop.parent / "store")
    return store, publish(shop, store, 6), publish(shop, store, 20)


def ids(store, found):
    return found.ref(store, "supergraph").table("primitives.parquet")["primitive_id"].to_pylist()


def test_the_later_vocabulary_is_aligned_to_the_earlier_one(grown):
    store, first, second = grown
    inputs = second.ref(store, "supergraph").manifest["inputs"]
    assert inputs["previous"] == first.stages["supergraph"]
    assert inputs["previous_embeddings"] == first.stages["embeddings"]
    assert "previous" not in first.ref(store, "supergraph").manifest["inputs"]
    churn = second.ref(store, "supergraph").json("churn.json")
    assert churn["previous"] == first.vocab_version
    kept = set(ids(store, first)) & set(ids(store, second))
    assert len(kept) == sum(level["kept"] for level in churn["levels"]) > 8
    assert vocabularies.descends(store, first, second)
    assert not vocabularies.descends(store, second, first)


def _stage(name):
    from flows.config import STAGES

    return next(stage for stage in STAGES if stage.name == name)


def _config(shop, **changes):
    from flows.config import load_config
    from flows.presets import named

    return load_config(named("demo"), shop, changes)


def test_the_later_learner_goes_on_from_the_earlier_one_and_its_key_says_so(shop, grown):
    from flows.tasks import stage_key

    store, first, second = grown
    ref = second.ref(store, "learner")
    assert ref.manifest["inputs"]["previous"] == first.stages["learner"]
    assert ref.manifest["inputs"]["previous_features"] == first.stages["features"]
    assert ref.metrics["warm_start"]["previous"] == first.stages["learner"]
    assert 0 < ref.metrics["warm_start"]["ids_kept"]["product"] <= ref.metrics["ids"]["product"]
    assert 0.8 < ref.metrics["warm_start"]["content_cosine"] < 1, "content is whitened anew"
    assert "warm_start" not in first.ref(store, "learner").metrics
    inputs = {name: second.ref(store, name) for name in ("graph", "features")}
    bare = stage_key(_stage("learner"), _config(shop), inputs)
    others = {"previous": first.ref(store, "learner"), "previous_features": first.ref(store, "features")}
    assert len({bare, *(stage_key(_stage("learner"), _config(shop), inputs | {n: r}) for n, r in others.items())}) == 3


def test_what_goes_on_is_the_learner_and_tokens_unless_off(shop, grown):
    store, first, second = grown
    refs = {"events": second.ref(store, "events")}

    def found(stage, **changes):
        inputs = vocabularies.previous(_stage(stage), _config(shop, **changes), refs, store)
        return {name: ref.key for name, ref in inputs.items()}

    assert found("learner") == {"previous": first.stages["learner"], "previous_features": first.stages["features"]}
    assert found("learner", learner={"warm_start": False}) == {}
    assert found("tokens") == {"previous_tokens": first.stages["tokens"]}
    assert found("tokens", tokens={"hysteresis": 0.0}) == {}


def test_the_same_run_twice_and_an_earlier_t0_find_no_other_predecessor(shop, grown):
    store, first, second = grown
    assert publish(shop, store, 6).id == first.id
    assert publish(shop, store, 20).id == second.id


def test_another_log_and_a_deleted_vocabulary_are_not_gone_on_from(shop, grown, tmp_path):
    from types import SimpleNamespace

    from flows.config import STAGES, load_config
    from flows.presets import named

    store, first, second = grown
    config = load_config(named("demo"), shop, {})
    stage = next(stage for stage in STAGES if stage.name == "supergraph")
    events = second.ref(store, "events")
    assert vocabularies.previous(stage, config, {"events": events}, store)["previous"].key == first.stages["supergraph"]
    other = SimpleNamespace(metrics={"name": "another log"})
    assert vocabularies.previous(stage, config, {"events": other}, store) == {}
    assert vocabularies.previous(STAGES[0], config, {}, store) == {}
    lacking = Store(tmp_path / "lacking")
    refs = {name: store.get(name, key) for name, key in first.stages.items()}
    snapshot.publish(lacking, refs, first.vocab_version, first.model_version, first.as_of)
    for name in ("events", "embeddings", "supergraph"):
        (lacking.root / name).mkdir()
        (lacking.root / name / first.stages[name]).symlink_to(store.root / name / first.stages[name])
    assert vocabularies.previous(_stage("learner"), config, {"events": events}, lacking) == {}, "its learner is gone"
    assert vocabularies.previous(stage, config, {"events": events}, lacking) != {}
    bare = Store(tmp_path)
    for found in (first, second):
        refs = {name: store.get(name, key) for name, key in found.stages.items()}
        snapshot.publish(bare, refs, found.vocab_version, found.model_version, found.as_of)
    assert vocabularies.previous(stage, config, {"events": events}, bare) == {}, "its artifacts are gone"
    for name in ("supergraph", "tokens"):
        (bare.root / name).mkdir()
        (bare.root / name / second.stages[name]).symlink_to(store.root / name / second.stages[name])
    with pytest.raises(UsageError, match="none before it"):
        vocabularies.pair(bare, None, second.id)


def test_diff_compares_the_published_snapshot_with_the_one_before_it(grown):
    store, first, second = grown
    found = token_diff.diff(store, None, None, None, 3)
    named = token_diff.diff(store, first.id, second.id, None, 3)
    assert found == named
    assert named["aligned"]
    for level in named["levels"]:
        assert level["entities"] > 50
        assert level["strongest_changed"] <= level["raw_strongest_changed"], "equal where every row keeps its id"
        assert level["bag_change"] <= level["raw_bag_change"]
    assert {group["bucket"] for group in named["groups"]} >= {"rare", "rest"}
    back = token_diff.diff(store, second.id, first.id, None, 3)
    assert not back["aligned"]
    same = token_diff.diff(store, second.id, "CURRENT", None, 3)
    assert {level["strongest_changed"] for level in same["levels"]} == {0}


def test_diff_without_a_predecessor_says_what_to_do(grown):
    store, first, _ = grown
    with pytest.raises(UsageError, match=r"none before it(.|\n)*strata tokens diff A B"):
        token_diff.diff(store, None, first.id, None, 3)
    with pytest.raises(BadDataError, match="expected snapshot 'nonsense'"):
        token_diff.diff(store, "nonsense", None, None, 3)
    with pytest.raises(BadDataError, match="when both have tokens"):
        token_diff.diff(store, None, None, "2024-02-10", 3)


def test_the_command_prints_tables_or_json(grown):
    from typer.testing import CliRunner

    store, first, second = grown
    plain = CliRunner().invoke(app, ["tokens", "diff", first.id, second.id, "--store", str(store.root)])
    assert plain.exit_code == 0, plain.output
    for words in ("kept", "unaligned", "Commonest changes", "rare: 1 to 20", first.id):
        assert words in plain.output
    asked = ["tokens", "diff", "previous", second.id, "--json", "--moves", "0", "--store", str(store.root)]
    found = json.loads(CliRunner().invoke(app, asked).output)
    assert (found["from"]["snapshot"], found["moves"]) == (first.id, [])


def test_a_bag_is_still_asked_for_without_naming_the_command(grown):
    from typer.testing import CliRunner

    store, _, second = grown
    where = ["--store", str(store.root), "--snapshot", second.id, "--json"]
    short, long = (CliRunner().invoke(app, ["tokens", *bag, "user", "u003", *where]) for bag in ([], ["bag"]))
    assert short.exit_code == 0, short.output
    assert json.loads(short.output) == json.loads(long.output)
    assert json.loads(CliRunner().invoke(app, ["tokens", *where, "user", "u003"]).output) == json.loads(long.output)


def test_the_entities_of_an_interest_are_listed_heaviest_first(grown):
    from typer.testing import CliRunner

    store, _, second = grown
    where = ["--store", str(store.root), "--snapshot", second.id, "--k", "4"]
    interest = ids(store, second)[0]
    plain = CliRunner().invoke(app, ["tokens", "entities", interest, "user", *where])
    assert plain.exit_code == 0, plain.output
    found = json.loads(CliRunner().invoke(app, ["tokens", "entities", interest, "user", *where, "--json"]).output)
    weights = [row["weight"] for row in found]
    assert 0 < len(found) <= 4
    assert weights == sorted(weights, reverse=True)
    assert all(row["entity_id"] in plain.output for row in found)
