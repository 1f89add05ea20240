"""One writer a key; the dead are followed under a higher number; the superseded cannot publish."""

import json
import multiprocessing
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from data import lease as leases
from data.errors import SystemStateError

ROOT = Path(__file__).resolve().parents[2]
HOLD = """
import sys, time
from pathlib import Path
from data import lease
with lease.hold(Path(sys.argv[1]), "stage key"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def other(tmp_path):
    """Another process that holds the lease of tmp_path."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_holder_is_refused_while_the_first_lives_and_follows_when_it_is_killed(tmp_path, other):
    refused = pytest.raises(SystemStateError, match=rf"stage key is being written by process {other.pid} .*fence 1")
    with refused, leases.hold(tmp_path, "stage key"):
        pass
    other.kill()
    other.wait()
    with leases.hold(tmp_path, "stage key") as mine:
        assert mine.fence == 2


def test_the_same_process_cannot_hold_a_key_twice(tmp_path):
    with leases.hold(tmp_path, "k"), pytest.raises(SystemStateError), leases.hold(tmp_path, "k"):
        pass


def test_a_released_lease_is_free_at_once_and_its_number_keeps_growing(tmp_path):
    fences = []
    for _ in range(3):
        with leases.hold(tmp_path, "k") as lease:
            fences.append(lease.fence)
    assert fences == [1, 2, 3]


def test_a_superseded_owner_fails_the_fence_check_and_does_not_overwrite_the_new_owner(tmp_path):
    with leases.hold(tmp_path, "k") as old:
        leases.check_fence(tmp_path, old)
        new = replace(old, fence=old.fence + 1, pid=old.pid + 1)
        (tmp_path / "lease.json").write_text(json.dumps(asdict(new)))
        with pytest.raises(SystemStateError, match=r"expected to hold fence 1 .*found fence 2.*nothing was published"):
            leases.check_fence(tmp_path, old)
    assert leases.read_lease(tmp_path) == new


def test_a_stale_fence_cannot_publish(store, make_ref):
    def overtaken(out):
        current = leases.read_lease(out.work)
        (out.work / "lease.json").write_text(json.dumps(asdict(replace(current, fence=current.fence + 1))))

    with pytest.raises(SystemStateError, match="nothing was published"):
        make_ref(store, "stage", overtaken, "key")
    assert store.find("stage", "key") is None


def test_on_another_host_only_the_heartbeat_counts(tmp_path):
    far = leases.Lease("elsewhere", 1, "1", 4, time.time())
    assert far.alive()
    assert not replace(far, heartbeat=time.time() - leases.TTL_S - 1).alive()
    (tmp_path / "lease.json").write_text(json.dumps(asdict(far)))
    with pytest.raises(SystemStateError, match="on elsewhere"), leases.hold(tmp_path, "k"):
        pass


def test_a_reused_process_id_is_not_taken_for_the_owner(tmp_path):
    with leases.hold(tmp_path, "k") as mine:
        assert mine.alive()
        assert not replace(mine, started="1").alive()
        assert not replace(mine, pid=2**22 + 1).alive()


def test_the_heartbeat_goes_on_while_held_and_stops_when_superseded(tmp_path, monkeypatch):
    monkeypatch.setattr(leases, "HEARTBEAT_S", 0.01)
    with leases.hold(tmp_path, "k") as mine:
        deadline = time.monotonic() + 5
        while leases.read_lease(tmp_path).heartbeat == mine.heartbeat and time.monotonic() < deadline:
            time.sleep(0.005)
        assert leases.read_lease(tmp_path).heartbeat > mine.heartbeat
        new = replace(mine, fence=9)
        (tmp_path / "lease.json").write_text(json.dumps(asdict(new)))
        time.sleep(0.05)
        assert leases.read_lease(tmp_path) == new


@pytest.mark.parametrize("content", ["", "{", '{"host": "x"}', "[]"])
def test_a_torn_lease_counts_as_none(tmp_path, content):
    (tmp_path / "lease.json").write_text(content)
    assert leases.read_lease(tmp_path) is None
    with leases.hold(tmp_path, "k") as lease:
        assert lease.fence == 1


def _race(folder, results, all_tried):
    try:
        with leases.hold(Path(folder), "k") as lease:
            results.put(lease.fence)
            all_tried.wait(60)  # the winner holds on until the last racer, however late it starts, has tried
    except SystemStateError:
        results.put(0)
        all_tried.wait(60)


def test_of_many_at_once_exactly_one_holds(tmp_path):
    context = multiprocessing.get_context("fork" if os.name == "posix" and sys.version_info < (3, 12) else "spawn")
    results = context.SimpleQueue()
    all_tried = context.Barrier(6)
    racers = [context.Process(target=_race, args=(str(tmp_path), results, all_tried)) for _ in range(6)]
    for racer in racers:
        racer.start()
    outcomes = sorted(results.get() for _ in racers)
    for racer in racers:
        racer.join()
    assert outcomes == [0, 0, 0, 0, 0, 1]
