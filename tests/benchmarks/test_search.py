"""The search benchmark at a tiny size: its gates catch wrong answers, its rows are complete, it needs little."""

import json
import subprocess
import sys

import numpy as np
import pytest

from data import vectors as door
from tests.benchmarks import rows, search

NEEDLESS = ("faiss", "prefect", "duckdb", "rich", "typer", "transformers", "sklearn", "torch_geometric")
TINY = ["--vectors", "900", "--dim", "8,12", "--queries", "40", "--k", "7", "--repeats", "2"]


def test_rows_come_after_the_gates_and_go_where_they_should(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "RESULTS", tmp_path)
    monkeypatch.setattr(rows, "commit", lambda: "abc")
    monkeypatch.setattr(door, "FLAT_LIMIT", 500)
    search.main(TINY)
    found = rows.read("search")
    names = {(row["what"], row["peer"], row["unit"]) for row in found}
    assert {
        ("exact search, torch top-k", "", "queries/s"),
        ("exact search, torch top-k", "", "TFLOP/s"),
        ("search on the CPU", "faiss flat", "queries/s"),
        ("search on the CPU", "faiss IVF", "queries/s"),
        ("search floor: the fp32 matrix product alone", "", "queries/s"),
    } <= names
    assert len(found) == 2 * len(names)
    assert all(float(row["p50"]) > 0 for row in found)
    equal = [float(row["p50"]) for row in found if row["metric"] == "share"]
    assert min(equal) > 0.99


def test_without_faiss_numpy_is_the_peer_and_rows_travel_in_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(search.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(rows, "RESULTS", tmp_path)
    search.main([*TINY, "--file", str(tmp_path / "rows.jsonl")])
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert {line["peer"] for line in lines} == {"", "numpy"}
    search.main(["--add", str(tmp_path / "rows.jsonl"), "--commit", "abc"])
    assert [row["what"] for row in rows.read("search")] == [line["what"] for line in lines]


def test_the_numpy_peer_is_exact_and_breaks_ties_by_id():
    rng = np.random.default_rng(0)
    vectors, queries = (rng.integers(-2, 3, (n, 5)).astype(np.float32) for n in (300, 130))
    scores, ids = search.numpy_search(vectors, queries, 9)
    full = queries @ vectors.T
    wanted = np.lexsort((np.broadcast_to(np.arange(300), full.shape), -full))[:, :9]
    np.testing.assert_array_equal(ids, wanted)
    np.testing.assert_array_equal(scores, np.take_along_axis(full, wanted, axis=1))


def test_the_gates_catch_wrong_answers(monkeypatch):
    vectors, queries = search.unit_vectors(400, 6, 0), search.unit_vectors(20, 6, 1)
    right = search.numpy_search(vectors, queries, 5)
    assert search.check_equal(right, right, vectors, queries) == 1.0
    with pytest.raises(AssertionError, match="scores differ"):
        search.check_equal((right[0] + 0.01, right[1]), right, vectors, queries)
    with pytest.raises(AssertionError, match="score of its rank"):
        search.check_equal((right[0], right[1][:, ::-1]), right, vectors, queries)
    with pytest.raises(AssertionError, match="found twice"):
        search.check_equal(*[(right[0][:, [0, 0]], right[1][:, [0, 0]])] * 2, vectors, queries)
    search.check_whole_numbers("cpu", 4, 11, 300, 20)
    real = search.DeviceIndex.search
    monkeypatch.setattr(search.DeviceIndex, "search", lambda *given: (None, real(*given)[1][:, ::-1]))
    with pytest.raises(AssertionError, match="full sort"):
        search.check_whole_numbers("cpu", 4, 11, 300, 20)


def test_it_imports_on_a_machine_with_little_more_than_torch():
    code = f"import sys; import tests.benchmarks.search; print([n for n in {NEEDLESS} if n in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
