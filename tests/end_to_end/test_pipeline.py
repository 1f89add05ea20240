"""The whole path on a small synthetic shop: kill and resume, permutation, deletion of the future, one flow two ways."""

import csv
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from data import snapshot
from data.artifacts import ArtifactRef, Store
from data.progress import Progress
from data.schema import to_micros

pytestmark = pytest.mark.slow
FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"


def _settings(shop: Path):
    from flows.config import load_config
    from flows.presets import named

    return load_config(named("demo"), shop / "shop.toml", {})


def _run_direct(shop: str, store: str, log: str) -> None:
    from flows import pipeline

    with open(log, "a", buffering=1) as stream:
        pipeline.direct(_settings(Path(shop)), Store(store), Progress(stream))


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    for path in FIXTURES.glob("shop*"):
        target = folder / path.name
        shutil.copytree(path, target) if path.is_dir() else shutil.copy(path, target)
    return folder


@pytest.fixture(scope="module")
def unbroken(published):
    return Store(published[0])


def _stage_names():
    from flows.config import STAGES

    return [stage.name for stage in STAGES]


def _complete_artifacts(store: Store) -> list[ArtifactRef]:
    """Every artifact a reader can see; each must be whole at any moment."""
    refs = []
    for folder in store.root.glob("*/*"):
        if folder.is_dir() and folder.parent.name not in {"work", "snapshots"} and not folder.name.startswith("."):
            ref = ArtifactRef(folder.parent.name, folder.name, folder)
            ref.verify()
            refs.append(ref)
    return refs


def test_kill_in_every_stage_then_the_same_command_gives_the_same_snapshot(processes, shop, unbroken, tmp_path):
    store, log = tmp_path / "store", tmp_path / "log.txt"
    killed = []
    for stage in _stage_names():
        child = processes.Process(target=_run_direct, args=(str(shop), str(store), str(log)))
        child.start()
        seen = f"\n> {stage} "
        deadline = time.monotonic() + 120
        while child.is_alive() and time.monotonic() < deadline:
            if log.exists() and seen in "\n" + log.read_text():
                os.kill(child.pid, signal.SIGKILL)
                break
            time.sleep(0.002)
        child.join()
        if child.exitcode == -signal.SIGKILL:
            killed.append(stage)
        _complete_artifacts(Store(store))
        assert not (store / "CURRENT").exists() or child.exitcode == 0
    assert len(killed) >= len(_stage_names()) - 2, "the kills must land inside the stages"
    _run_direct(str(shop), str(store), str(log))
    whole, resumed = snapshot.load(unbroken), snapshot.load(Store(store))
    assert resumed.id == whole.id
    for stage in whole.stages:
        if stage != "report":  # the report shows seconds, which differ
            files = [
                snap.ref(home, stage).manifest["files"] for snap, home in ((whole, unbroken), (resumed, Store(store)))
            ]
            assert {n: f["sha256"] for n, f in files[0].items()} == {n: f["sha256"] for n, f in files[1].items()}, stage


def _table_hashes(store: Store) -> dict[str, str]:
    """sha256 of every table; the quarantine is left out because it names row numbers."""
    found = snapshot.load(store)
    hashes = {}
    for stage in found.stages:
        for name, listed in found.ref(store, stage).manifest["files"].items():
            if name.endswith((".parquet", ".npy")) and name != "quarantine.parquet":
                hashes[f"{stage}/{name}"] = listed["sha256"]
    return hashes


def _rewrite(shop: Path, target: Path, change) -> Path:
    """A copy of the shop whose event rows went through `change`."""
    shutil.copytree(shop, target)
    for path in target.rglob("*.csv"):
        with open(path, newline="", encoding="utf-8") as stream:
            header, *rows = csv.reader(stream)
        with open(path, "w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([header, *change(path.stem, header, rows)])
    return target


def test_permuting_the_input_rows_changes_no_table(shop, unbroken, tmp_path):
    def shuffled(name, header, rows):
        random.Random(name).shuffle(rows)
        return rows

    permuted = _rewrite(shop, tmp_path / "shop", shuffled)
    _run_direct(str(permuted), str(tmp_path / "store"), os.devnull)
    assert _table_hashes(Store(tmp_path / "store")) == _table_hashes(unbroken)


def _rows_before(store: Store, cut: int, scratch: Path) -> list[dict]:
    from ranking.examples import to_external

    target = scratch / "rows.parquet"
    to_external(snapshot.load(store).ref(store, "examples"), target)
    return [row for row in pq.read_table(target).to_pylist() if row["ts"] < cut]


def test_deleting_the_future_changes_no_training_row_before_it(shop, unbroken, tmp_path):
    config = _settings(shop)
    t0, t1 = to_micros(config.cuts.t0), to_micros(config.cuts.t1)
    cut = (t0 + t1) // 2

    def past_only(name, header, rows):
        if name != "shop_events":
            return rows
        at = header.index("at_ms")
        return [row for row in rows if int(row[at]) * 1000 < cut]

    past = _rewrite(shop, tmp_path / "shop", past_only)
    _run_direct(str(past), str(tmp_path / "store"), os.devnull)
    kept = _rows_before(Store(tmp_path / "store"), cut, tmp_path)
    assert len(kept) > 50
    assert kept == _rows_before(unbroken, cut, tmp_path)


def test_prefect_and_direct_runs_give_the_same_keys(shop, unbroken, tmp_path, monkeypatch):
    from flows import pipeline

    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    found = pipeline.orchestrated(_settings(shop), Store(tmp_path / "store"), Progress())
    assert found.snapshot.stages == snapshot.load(unbroken).stages
