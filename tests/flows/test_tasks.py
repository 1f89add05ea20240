from types import SimpleNamespace

import pytest

from data.artifacts import ArtifactRef, Store
from data.context import RunContext, StageConfig, execution
from data.errors import BadDataError
from flows.config import Stage
from flows.tasks import run_stage, stage_key


class Config(StageConfig):
    """A stage config with one field of each kind."""

    size: int = 3
    batch_size: int = execution(8, "rows at once")


def _stage(run, name="sizes"):
    return Stage(name, SimpleNamespace(__name__="data.sizes", Config=Config, run=run))


def _pipeline(**fields):
    return SimpleNamespace(seed=0, sizes=Config(**fields))


def _write(config, inputs, out, ctx):
    out.write_json("size.json", config.size)
    return {"size": config.size}


def test_a_finished_stage_is_reused_and_its_manifest_tells_its_causes(tmp_path):
    calls = []
    stage = _stage(lambda *args: calls.append(1) or _write(*args))
    store, ctx = Store(tmp_path), RunContext(threads=1)
    first = run_stage(stage, _pipeline(), {}, store, ctx)
    second = run_stage(stage, _pipeline(), {}, store, ctx)
    assert (first, len(calls)) == (second, 1)
    manifest = first.manifest
    assert manifest["metrics"] == {"size": 3}
    assert manifest["duration_s"] >= 0
    assert manifest["peak_rss_mb"] > 1
    assert {"git_sha", "dirty", "hash"} == set(manifest["code"])


def test_key_follows_results_not_execution(tmp_path):
    stage = _stage(_write)
    base = stage_key(stage, _pipeline(), {})
    assert stage_key(stage, _pipeline(batch_size=99), {}) == base
    assert stage_key(stage, _pipeline(size=4), {}) != base
    assert stage_key(stage, SimpleNamespace(seed=1, sizes=Config()), {}) != base
    assert stage_key(stage, _pipeline(), {"events": ArtifactRef("events", "k", tmp_path)}) != base


def test_a_failing_stage_publishes_nothing_and_can_be_run_again(tmp_path):
    def fail(config, inputs, out, ctx):
        out.write_json("half.json", 1)
        raise BadDataError("broken row")

    store = Store(tmp_path)
    with pytest.raises(BadDataError, match="broken row"):
        run_stage(_stage(fail), _pipeline(), {}, store, RunContext(threads=1))
    assert [p.name for p in (tmp_path / "sizes").iterdir()] == []
    assert run_stage(_stage(_write), _pipeline(), {}, store, RunContext(threads=1)).metrics == {"size": 3}
