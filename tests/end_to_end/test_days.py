"""A log and its graph that grow by days while every day's first try is killed: the last day is as if made at once."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from data.artifacts import ArtifactRef, Store
from data.progress import Progress

pytestmark = pytest.mark.slow
FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
DAYS = (3, 4, 5, 6)


def _run(shop: str, store: str, day: int, log: str) -> dict[str, ArtifactRef]:
    from flows import pipeline
    from flows.config import load_config
    from flows.presets import named

    as_of = {"events": {"as_of": f"2024-02-{day:02d}T00:00:00Z"}}
    settings = load_config(named("demo"), Path(shop) / "shop.toml", as_of)
    with open(log, "a", buffering=1) as stream:
        return pipeline.direct(settings, Store(store), Progress(stream), "graph").refs


def _kill_within(context, stage: str, arguments: tuple[str, str, int, str]) -> bool:
    """Start a run and kill it once it has begun `stage`; whether that came in time."""
    log = Path(arguments[-1])
    log.write_text("")
    child = context.Process(target=_run, args=arguments)
    child.start()
    deadline = time.monotonic() + 120
    while child.is_alive() and time.monotonic() < deadline:
        if f"> {stage} " in log.read_text():
            time.sleep(0.1)
            os.kill(child.pid, signal.SIGKILL)
            break
        time.sleep(0.002)
    child.join()
    return child.exitcode == -signal.SIGKILL


def _hashes(ref: ArtifactRef) -> dict[str, str]:
    told = {"summary.json", "quarantine.parquet", "files.json"}  # these say what a run read, not what the log holds
    return {name: listed["sha256"] for name, listed in ref.manifest["files"].items() if name not in told}


def test_a_kill_on_every_day_leaves_the_log_and_graph_of_a_run_at_once(processes, tmp_path):
    for path in FIXTURES.glob("shop*"):
        shutil.copy(path, tmp_path)
    store, log = str(tmp_path / "store"), str(tmp_path / "log.txt")
    killed = 0
    for day, stage in zip(DAYS, ("events", "graph", "events", "graph"), strict=True):
        killed += _kill_within(processes, stage, (str(tmp_path), store, day, log))
        grown = _run(str(tmp_path), store, day, log)
        for ref in grown.values():
            ref.verify()
    assert killed >= 2, "the kills must land inside the stages"
    assert "previous" in grown["events"].manifest["inputs"]
    whole = _run(str(tmp_path), str(tmp_path / "other"), DAYS[-1], log)
    assert _hashes(grown["events"]) == _hashes(whole["events"])
    tables = {name: sha for name, sha in _hashes(whole["graph"]).items() if name != "segments.json"}
    assert {name: _hashes(grown["graph"]).get(name) for name in tables} == tables
