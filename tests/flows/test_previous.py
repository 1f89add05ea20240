"""What a run at a later instant builds on, and what that does to keys."""

import shutil
from pathlib import Path

import pytest

from data import snapshot
from data.artifacts import ArtifactRef, Store
from data.errors import BadDataError, UsageError
from data.parts import EVENT_PARTS
from data.progress import Progress
from data.schema import to_micros
from flows import pipeline, previous
from flows.config import STAGES, load_config
from flows.presets import named
from flows.tasks import stage_key

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
EVENTS, GRAPH = STAGES[:2]


@pytest.fixture
def shop(tmp_path) -> Path:
    for path in FIXTURES.glob("shop*"):
        shutil.copy(path, tmp_path)
    return tmp_path


def settings(shop, day=None, **changes):
    events = {} if day is None else {"as_of": f"2024-02-{day:02d}T00:00:00Z"}
    return load_config(
        named("demo"), shop / "shop.toml", {"events": {**events, **changes.pop("events", {})}, **changes}
    )


def run(shop, day=None, until="graph", **changes):
    return pipeline.direct(settings(shop, day, **changes), Store(shop / "store"), Progress(), until)


def test_days_build_on_each_other_and_equal_a_run_at_once(shop, tmp_path):
    first, second, third = (run(shop, day).refs for day in (1, 2, 3))
    assert "previous" not in first["events"].manifest["inputs"]
    for earlier, later in ((first, second), (second, third)):
        assert later["events"].manifest["inputs"]["previous"] == earlier["events"].key
        assert later["graph"].manifest["inputs"]["previous"] == earlier["graph"].key
        name = earlier["events"].names(EVENT_PARTS)[0]
        assert later["events"].file(name).samefile(earlier["events"].file(name))
    whole = pipeline.direct(settings(shop, 3), Store(tmp_path / "other"), Progress(), "graph").refs
    parts = {name: listed["sha256"] for name, listed in whole["events"].manifest["files"].items() if "events/" in name}
    grown = third["events"].manifest["files"]
    assert parts == {name: grown[name]["sha256"] for name in parts}
    assert len(parts) == len(third["events"].names(EVENT_PARTS))


def test_an_instant_that_goes_back_builds_on_nothing_later(shop):
    run(shop, 5, "events")
    assert "previous" not in run(shop, 3, "events").refs["events"].manifest["inputs"]
    assert "previous" not in run(shop, None, "events").refs["events"].manifest["inputs"], "plain runs read everything"


@pytest.mark.parametrize("changes", [{"seed": 8}, {"events": {"late": "drop"}}, {"events": {"max_lateness_days": 3}}])
def test_another_lineage_is_not_built_on(shop, changes):
    run(shop, 1, "events")
    assert "previous" not in run(shop, 2, "events", **changes).refs["events"].manifest["inputs"]
    assert "previous" in run(shop, 2, "events", threads=1).refs["events"].manifest["inputs"]


def test_a_log_whose_files_grew_is_of_the_same_lineage_and_the_same_day_twice_is_reused(shop):
    first = run(shop, 1, "events").refs["events"]
    with open(shop / "shop_events.csv", "a", encoding="utf-8") as stream:
        stream.write("new,u001,p001,a00,,bought,1706800000000,1706800000000,1,store,\n")
    second = run(shop, 2, "events").refs["events"]
    assert second.manifest["inputs"]["previous"] == first.key
    assert run(shop, 2, "events").refs["events"] == second


def test_the_previous_log_is_part_of_the_key_and_the_previous_graph_is_not(shop):
    config = settings(shop, 2)
    one = run(shop, 1).refs
    events = run(shop, 2, "events").refs["events"]
    assert stage_key(EVENTS, config, {"previous": one["events"]}) != stage_key(EVENTS, config, {})
    bare = stage_key(GRAPH, config, {"events": events})
    assert stage_key(GRAPH, config, {"events": events, "previous": one["graph"]}) == bare


def test_the_nearest_earlier_graph_is_found_over_days_without_one(shop):
    one = run(shop, 1).refs["graph"]
    run(shop, 2, "events")
    assert run(shop, 3).refs["graph"].manifest["inputs"]["previous"] == one.key


LEARNER = next(stage for stage in STAGES if stage.name == "learner")


def test_what_a_learner_looks_at_stands_for_its_inputs_in_the_key(shop, monkeypatch):
    config = settings(shop, 25)
    inputs = {"graph": ArtifactRef("graph", "g1", shop), "features": ArtifactRef("features", "f1", shop)}
    past = {"graph": "same", "features": "same"}
    monkeypatch.setattr(LEARNER.module, "seen", lambda config, inputs: past)
    key = stage_key(LEARNER, config, inputs)
    assert stage_key(LEARNER, config, {**inputs, "graph": ArtifactRef("graph", "g2", shop)}) == key
    past = {"graph": "altered", "features": "same"}
    assert stage_key(LEARNER, config, inputs) != key
    moved = settings(shop, 25, cuts={"t0": "2024-02-21T00:00:00Z"})
    assert stage_key(LEARNER, moved, inputs, {"graph": "same", "features": "same"}) != key


def test_an_altered_past_is_told_and_another_lineage_or_an_unaltered_one_is_not(shop):
    store, config = Store(shop / "store"), settings(shop, 25)
    said = {"graph": "a", "features": "b"}
    assert previous.altered(LEARNER, config, store, said) is None, "the first learner"
    causes = {"lineage": previous.lineage(LEARNER, config), "seen": said, "finished_at": "2024-02-25"}
    with store.publish("learner", "old", causes):
        pass
    told = previous.altered(LEARNER, config, store, {**said, "graph": "x"})
    assert told == "! learner is made anew: what learner old saw of graph was altered since"
    assert previous.altered(LEARNER, config, store, said) is None
    assert previous.altered(LEARNER, settings(shop, 25, seed=9), store, {**said, "graph": "x"}) is None


def test_dates_of_embeddings_are_lent_by_the_newest_that_ends_no_later(shop):
    embeddings = next(stage for stage in STAGES if stage.name == "embeddings")
    store = Store(shop / "store")
    assert settings(shop, 25).embeddings.as_of == settings(shop, 25).events.as_of
    for day in (21, 22, 26):
        config = settings(shop, day)
        causes = {"lineage": previous.lineage(embeddings, config), "finished_at": "now"}
        with store.publish("embeddings", f"day{day}", causes) as (_, extras):
            extras["metrics"] = {"last_as_of": to_micros(config.events.as_of)}
    assert previous.resolve(embeddings, settings(shop, 25), {}, store).key == "day22"
    assert previous.resolve(embeddings, settings(shop, 20), {}, store) is None
    assert previous.resolve(embeddings, settings(shop), {}, store) is None, "plain runs build on nothing"


def test_a_run_that_stops_early_publishes_no_snapshot_and_says_so(shop, capsys):
    from flows import summary

    outcome = run(shop, 1, "events")
    assert outcome.snapshot is None
    with pytest.raises(BadDataError, match="no snapshot"):
        snapshot.load(Store(shop / "store"))
    found = summary.of_part(outcome.refs, "events")
    assert found["stages"][0]["rows"]["events.parquet"] == outcome.refs["events"].rows(EVENT_PARTS)
    summary.render_part(found)
    assert "no snapshot was published" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("day", "until", "words"),
    [
        (10, None, ["'learner'", "t0", "2024-02-20", "--until features"]),
        (25, None, ["'evaluation'", "t2", "2024-03-16", "--until index"]),
        (10, "tokens", ["'learner'", "t0"]),
        (10, "grph", ["did you mean 'graph'?", "events, graph, features"]),
    ],
)
def test_an_instant_too_early_for_a_stage_is_told_before_anything_is_read(shop, day, until, words):
    with pytest.raises(UsageError) as caught:
        previous.check_instant(settings(shop, day), until)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_an_instant_late_enough_passes(shop):
    previous.check_instant(settings(shop, 10), "features")
    previous.check_instant(settings(shop, 25), "index")
    previous.check_instant(settings(shop), None)
