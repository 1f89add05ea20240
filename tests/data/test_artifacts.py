"""Artifacts appear whole or not at all, and whatever is wrong with one is said by name."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from data import artifacts
from data.artifacts import ArtifactRef, Store, artifact_key
from data.errors import BadDataError, SystemStateError

ROOT = Path(__file__).resolve().parents[2]
TABLE = pa.table({"n": pa.array(range(10), pa.int64())})


def write_some(out):
    out.write_table("rows.parquet", TABLE)
    out.write_json("notes.json", {"b": 1, "a": "é"})
    out.write_array("sub/values.npy", np.arange(6).reshape(3, 2))
    out.write_tensors("model.safetensors", {"w": torch.ones(2, requires_grad=True)}, {"kind": "test"})
    return {"rows": 10}


@pytest.fixture
def ref(store, make_ref):
    return make_ref(store, "stage", write_some, "key")


def test_a_published_artifact_reads_back_through_every_door(ref):
    assert ref.table("rows.parquet").equals(TABLE)
    assert ref.table("rows.parquet", filters=[("n", ">", 7)]).num_rows == 2
    assert [batch.num_rows for batch in ref.batches("rows.parquet", rows=4)] == [4, 4, 2]
    assert ref.json("notes.json") == {"a": "é", "b": 1}
    assert ref.array("sub/values.npy").tolist() == [[0, 1], [2, 3], [4, 5]]
    assert ref.metrics == {"rows": 10}
    assert ref.has("notes.json")
    assert not ref.has("absent.json")
    rows = {name: listed["rows"] for name, listed in ref.manifest["files"].items()}
    assert rows == {"model.safetensors": None, "notes.json": None, "rows.parquet": 10, "sub/values.npy": 3}
    ref.verify()


def test_equal_content_gives_equal_hashes(store, make_ref, ref):
    assert make_ref(store, "stage", write_some, "again").manifest["files"] == ref.manifest["files"]


def test_an_array_can_be_filled_in_place(store, make_ref):
    def fill(out):
        out.open_array("big.npy", (4, 2), np.float32)[:] = 3

    ref = make_ref(store, "stage", fill)
    assert ref.array("big.npy").sum() == 24
    assert ref.manifest["files"]["big.npy"]["rows"] == 4


def test_a_failing_stage_leaves_nothing_visible_and_keeps_its_work(store, make_ref):
    def half(out):
        out.write_table("rows.parquet", TABLE)
        (out.work / "shard").write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        make_ref(store, "stage", half, "key")
    assert list((store.root / "stage").iterdir()) == []
    assert (store.work("stage", "key") / "shard").read_text() == "half"
    with store.publish("stage", "key", {}) as (out, _):
        assert (out.work / "shard").exists()
    assert store.find("stage", "key") is not None
    assert not (store.work("stage", "key") / "shard").exists()


CRASH = """
import os, sys
import pyarrow as pa
from data.artifacts import Store
with Store(sys.argv[1]).publish("stage", "key", {}) as (out, _):
    out.write_table("rows.parquet", pa.table({"n": [1]}))
    os._exit(9)
"""


def test_a_process_that_dies_while_writing_leaves_nothing_visible(store):
    crashed = subprocess.run([sys.executable, "-c", CRASH, str(store.root)], cwd=ROOT, check=False)
    assert crashed.returncode == 9
    assert store.find("stage", "key") is None
    leftovers = [path.name for path in (store.root / "stage").iterdir()]
    assert leftovers == [".key.1"]
    with store.publish("stage", "key", {}) as (out, _):
        assert out.path.name == ".key.2", "a higher fencing number"
        out.write_table("rows.parquet", TABLE)
    assert [path.name for path in (store.root / "stage").iterdir()] == ["key"]
    store.get("stage", "key").verify()


def test_what_another_run_published_meanwhile_stays(store, make_ref):
    with store.publish("stage", "key", {}) as (out, _):
        out.write_json("notes.json", 1)
        theirs = store.root / "stage" / "key"
        theirs.mkdir()
        (theirs / "manifest.json").write_text("{}")
    assert sorted(path.name for path in theirs.iterdir()) == ["manifest.json"]
    assert [path.name for path in theirs.parent.iterdir()] == ["key"]


def test_a_torn_file_is_found_by_its_size(store, ref):
    path = ref.path / "rows.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BadDataError, match=r"rows.parquet is torn: expected \d+ bytes, got \d+ bytes. Delete"):
        store.find("stage", "key")
    path.unlink()
    with pytest.raises(BadDataError, match="no file"):
        ref.check_sizes()


@pytest.mark.parametrize("place", [10, -40])
def test_an_altered_byte_is_found_by_verify(ref, place):
    path = ref.path / "rows.parquet"
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(BadDataError, match=r"rows\.parquet was altered"):
        ref.verify()


def test_a_missing_or_torn_manifest_and_an_unlisted_file_are_refused(ref, store):
    with pytest.raises(BadDataError, match=r"expected file 'other\.npy'"):
        ref.file("other.npy")
    (ref.path / "manifest.json").write_text('{"files":')
    fresh = ArtifactRef("stage", "key", ref.path)
    with pytest.raises(BadDataError, match="manifest unreadable"):
        fresh.check_sizes()
    with pytest.raises(BadDataError, match="expected artifact stage/none"):
        store.get("stage", "none")


@pytest.mark.parametrize("name", ["model.pt", "x.pkl", "deep/x.pickle", "a.ckpt", "a.bin", "a.pth"])
def test_pickles_are_refused_by_suffix(store, name):
    with pytest.raises(BadDataError, match="no pickles"), store.publish("stage", "key", {}) as (out, _):
        out.file(name)
    with (
        pytest.raises(ValueError, match="Object arrays cannot be saved"),
        store.publish("stage", "key", {}) as (out, _),
    ):
        out.write_array("objects.npy", np.array([{}, {}], dtype=object))


def test_a_full_disk_is_explained_and_nothing_is_published(store, make_ref):
    def full(out):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(SystemStateError, match=r"(?s)No space left.*MB free.*unchanged") as caught:
        make_ref(store, "stage", full, "key")
    assert caught.value.exit_code == 4
    assert store.find("stage", "key") is None


def test_other_operating_system_errors_pass_unchanged(store):
    with pytest.raises(FileNotFoundError), store.publish("stage", "key", {}) as (out, _):
        (out.path / "absent").read_text()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 512 KiB; skipped where this process may not mount one."""
    target = tmp_path / "disk"
    target.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", target], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system is not allowed here")
    yield target
    subprocess.run(["umount", target], check=True)


def test_on_a_disk_that_is_really_full_nothing_is_published(small_disk, make_ref):
    store = Store(small_disk)
    noise = pa.table({"n": np.random.default_rng(0).random(200_000)})
    with pytest.raises(SystemStateError, match="No space left"):
        make_ref(store, "stage", lambda out: out.write_table("noise.parquet", noise), "key")
    assert store.find("stage", "key") is None
    assert list((small_disk / "stage").iterdir()) == []


def test_the_key_follows_every_cause_and_nothing_else():
    base = {"stage": "s", "config": {"a": 1, "b": 2}, "seed": 0, "inputs": {"x": "k"}, "code": "c", "sources": ["h"]}
    key = artifact_key(**base)
    assert key == artifact_key(**{**base, "config": {"b": 2, "a": 1}})
    changed = [
        {"stage": "t"},
        {"config": {"a": 2}},
        {"seed": 1},
        {"inputs": {"x": "l"}},
        {"code": "d"},
        {"sources": None},
    ]
    assert len({key, *(artifact_key(**{**base, **change}) for change in changed)}) == 7
    assert len(key) == 20


def test_hashing_reads_files_larger_than_a_chunk(tmp_path, monkeypatch):
    monkeypatch.setattr(artifacts, "_CHUNK", 3)
    (tmp_path / "x").write_bytes(b"hello world")
    assert artifacts.sha256_file(tmp_path / "x").startswith("b94d27b9934d3e08")


def test_the_manifest_says_what_caused_the_artifact(store):
    with store.publish("stage", "key", {"inputs": {"events": "e1"}, "seed": 3}) as (out, extras):
        out.write_json("a.json", 1)
        extras["duration_s"] = 1.5
    manifest = json.loads((store.root / "stage" / "key" / "manifest.json").read_text())
    assert (manifest["stage"], manifest["key"], manifest["seed"], manifest["duration_s"]) == ("stage", "key", 3, 1.5)
    assert manifest["inputs"] == {"events": "e1"}


def test_an_adopted_file_shares_its_bytes_and_is_not_hashed_again(store, make_ref, ref, monkeypatch):
    hashed = []
    real = artifacts.sha256_file
    monkeypatch.setattr(artifacts, "sha256_file", lambda path: hashed.append(path.name) or real(path))

    def take(out):
        out.adopt(ref, "rows.parquet")
        out.adopt(ref, "sub/values.npy", "moved/values.npy")
        return {}

    taken = make_ref(store, "stage", take, "taken")
    assert hashed == []
    assert taken.file("rows.parquet").samefile(ref.file("rows.parquet"))
    assert taken.manifest["files"]["rows.parquet"] == ref.manifest["files"]["rows.parquet"]
    assert taken.rows("moved/values.npy") == 3
    taken.verify()


def test_where_links_cannot_be_made_an_adopted_file_is_copied(store, make_ref, ref, monkeypatch):
    def refuse(source, target):
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(artifacts.os, "link", refuse)
    taken = make_ref(store, "stage", lambda out: out.adopt(ref, "rows.parquet") or {}, "copied")
    assert not taken.file("rows.parquet").samefile(ref.file("rows.parquet"))
    assert taken.table("rows.parquet").equals(TABLE)
    taken.verify()


def test_writing_over_an_adopted_file_leaves_the_others_bytes_alone(store, make_ref, ref):
    def replace(out):
        out.adopt(ref, "rows.parquet")
        out.write_table("rows.parquet", TABLE.slice(0, 3))
        return {}

    taken = make_ref(store, "stage", replace, "replaced")
    assert taken.table("rows.parquet").num_rows == taken.rows("rows.parquet") == 3
    assert ref.table("rows.parquet").equals(TABLE)
    ref.verify()
    taken.verify()


def test_a_torn_file_is_not_adopted(store, make_ref, ref):
    with open(ref.path / "rows.parquet", "ab") as stream:
        stream.write(b"x")
    with pytest.raises(BadDataError, match="torn"):
        make_ref(store, "stage", lambda out: out.adopt(ref, "rows.parquet"), "taken")


def test_paths_name_one_file_or_all_below_a_folder(store, make_ref):
    def write(out):
        for name in ("b/2.json", "b/1.json", "a.json"):
            out.write_json(name, name)

    ref = make_ref(store, "stage", write, "paths")
    assert ref.paths("a.json") == [str(ref.path / "a.json")]
    assert ref.paths("b/") == [str(ref.path / "b" / name) for name in ("1.json", "2.json")]
    with pytest.raises(BadDataError, match="expected file"):
        ref.paths("c.json")
