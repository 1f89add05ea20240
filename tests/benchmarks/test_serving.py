"""The serving benchmark on a tiny ranker: it refuses wrong scores, and its rows are complete."""

import numpy as np
import pytest

from tests.benchmarks import rows, serving
from tests.flows.test_ranking_commands import store as store


@pytest.fixture(autouse=True)
def _same_cores(monkeypatch):
    monkeypatch.setattr(serving.os, "sched_setaffinity", lambda *_: None, raising=False)
    monkeypatch.setattr("torch.set_num_threads", lambda _: None)


def test_rows_name_every_latency(store, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["serving", "--store", str(store), "--candidates", "8,40", "--requests", "3",
                                     "--csv", str(tmp_path / "ranking.csv")])  # fmt: skip
    monkeypatch.setattr(rows, "commit", lambda: "abc")
    serving.main()
    monkeypatch.setattr(rows, "RESULTS", tmp_path)
    found = rows.read("ranking")
    assert {row["metric"] for row in found} == {"latency", "latency, p99", "CPU time", "CPU time, p99"}
    assert len(found) == 2 * 2 * 4
    assert all(float(row["p50"]) > 0 and row["unit"] == "ms" for row in found)


def test_the_gate_catches_other_scores(store, monkeypatch):
    subject, ranker = serving.opened(store, None, "ranker-tokens-0")
    serving.check_scores(subject, ranker, "ranker-tokens-0")
    weight = subject.service._network.heads.tasks.bias
    weight.data += 1e-3
    with pytest.raises(AssertionError):
        serving.check_scores(subject, ranker, "ranker-tokens-0")
    assert np.isfinite(weight.detach().numpy()).all()
