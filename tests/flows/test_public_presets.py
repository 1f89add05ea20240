"""Each public set has a preset that a run reads: on tiny files, as far as the graph."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from data.artifacts import Store
from data.context import RunContext
from data.parts import EVENT_PARTS
from data.schema import to_micros
from data.sources.splits import load_split
from flows.__main__ import app
from flows.config import STAGES, load_config
from flows.presets import named
from flows.public_sets import PRESETS
from flows.tasks import run_stage
from tests.fixtures import public_sets


def run_to_graph(config, store):
    refs = {}
    for stage in STAGES[:2]:
        refs[stage.name] = run_stage(
            stage, config, {name: refs[name] for name in stage.inputs}, store, RunContext(threads=1)
        )
    return refs["events"], refs["graph"]


def test_every_set_has_a_preset():
    assert set(PRESETS) == set(public_sets.FOLDERS)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_reads_its_set_as_far_as_the_graph(tmp_path, store, monkeypatch, name):
    monkeypatch.setenv("STRATA_DATA", str(tmp_path))
    public_sets.write(name, tmp_path)
    config = load_config(named(name), None, {})
    events, graph = run_to_graph(config, store)
    assert graph.metrics["nodes"]["user"] == events.rows("users.parquet") > 1
    assert graph.metrics["nodes"]["product"] == events.rows("products.parquet") > 2
    events_of = {kind: graph.metrics["edges"][f"user-{kind}-product"] for kind in events.metrics["counts"]}
    assert events_of == events.metrics["counts"]
    if events.has("split.parquet"):
        part = {row["event_id"]: row["part"] for row in events.table("split.parquet").to_pylist()}
        t1, t2 = to_micros(config.cuts.t1), to_micros(config.cuts.t2)
        for row in events.table(EVENT_PARTS).to_pylist():
            assert (part[row["event_id"]] == "test") == (row["ts"] >= t2)
            assert (part[row["event_id"]] == "valid") == (name != "retailrocket" and t1 <= row["ts"] < t2)


def test_a_configuration_file_says_where_the_set_lies_and_what_differs(tmp_path, store, monkeypatch):
    monkeypatch.setenv("STRATA_DATA", str(tmp_path / "elsewhere"))
    public_sets.write("movielens-100k", tmp_path)
    path = tmp_path / "own.toml"
    path.write_text('[events.movielens]\nroot = "ml-100k"\ninterested_from = 3\n')
    events, _ = run_to_graph(load_config(named("movielens-100k"), path, {}), store)
    assert events.metrics["counts"] == {"interested": 3, "not_interested": 1}
    assert np.isclose(events.table(EVENT_PARTS)["value"].to_numpy().sum(), 13)


@pytest.mark.parametrize("name", ["gowalla", "amazon-scientific"])
def test_the_command_line_reads_a_set_by_instants_and_by_a_configuration_file(tmp_path, name):
    folder = public_sets.write(name, tmp_path)
    source = "gowalla" if name == "gowalla" else "amazon_scientific"
    path = tmp_path / "own.toml"
    path.write_text(f'[events.{source}]\nroot = "{folder.name}"\n')
    fixed = ["run", "--direct", "--preset", name, "--config", str(path), "--store", str(tmp_path / "store"), "--json"]
    rows = []
    for instant in ("2019-12-31", "2020-01-01", None):
        chosen = [*fixed, "--until", "graph", *(("--as-of", instant) if instant else ())]
        answer = CliRunner().invoke(app, chosen)
        assert answer.exit_code == 0, answer.output
        keys = {stage["stage"]: stage["key"] for stage in json.loads(answer.stdout)["stages"]}
        graph = Store(tmp_path / "store").get("graph", keys["graph"])
        rows.append(graph.metrics["edges"]["user-purchase-product"])
    split = load_split(name, folder)
    assert rows == np.cumsum([len(part.items) for part in (split.train, split.valid, split.test)]).tolist()
