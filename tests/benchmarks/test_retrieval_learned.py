"""The learned retrieval benchmark: its ranking is that of hierarchy.recall, and it runs where little is installed."""

import csv
import json
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse

from data.errors import UsageError
from data.sources.splits import load_split
from hierarchy.recall import Question, recall_at
from tests.benchmarks import retrieval_learned
from tests.benchmarks.learned_retrieval import sets, trials
from tests.benchmarks.learned_retrieval.ranking import Ranking, best
from tests.benchmarks.learned_retrieval.sets import Arrays, Rows
from tests.fixtures import public_sets

ROOT = Path(__file__).resolve().parents[2]
CPU = torch.device("cpu")


@dataclass
class Table:
    """A scorer that knows its scores."""

    values: np.ndarray

    def scores(self, users):
        return self.values[users].copy()

    def on_device(self, users):
        return torch.from_numpy(self.scores(users.numpy()))


def rows_of(lists):
    return Rows(np.cumsum([0, *map(len, lists)]), np.array([item for items in lists for item in items], np.int64))


def matrix(rows, items):
    return sparse.csr_array(
        (np.ones(len(rows.items)), (rows.users(), rows.items)), shape=(len(rows.offsets) - 1, items)
    )


def some_lists(rng, users=700, items=90, most=9):
    """Two disjoint lists of items for each user, some of them empty."""
    cuts = [(rng.permutation(items), rng.integers(0, most, 2)) for _ in range(users)]
    return [list(p[:a]) for p, (a, _) in cuts], [list(p[a : a + b]) for p, (a, b) in cuts]


def test_ranking_is_that_of_hierarchy_recall_with_ties_and_barred_items():
    rng = np.random.default_rng(0)
    scorer = Table(rng.integers(-4, 5, (700, 90)).astype(np.float32) / 4)
    barred, targets = map(rows_of, some_lists(rng))
    ranking = Ranking(targets, barred, CPU)
    found = ranking.of(scorer, (5, 10))
    counts = np.diff(targets.offsets)[ranking.users]
    for k in (5, 10):
        question = Question("all", matrix(targets, 90).astype(bool), np.ones(90, bool), matrix(barred, 90))
        want, _ = recall_at(scorer, [question], ranking.users.numpy(), k)[0]
        np.testing.assert_allclose(found[f"recall@{k}"], want * np.minimum(counts, k) / counts)


def test_ndcg_is_its_formula():
    rng = np.random.default_rng(1)
    scorer = Table(rng.normal(size=(60, 90)).astype(np.float32))
    barred, lists = some_lists(rng, users=60)
    ranking = Ranking(rows_of(lists), rows_of(barred), CPU)
    found = ranking.of(scorer, (4,))["ndcg@4"]
    for place, user in enumerate(ranking.users.tolist()):
        order = [i for i in np.argsort(-scorer.values[user], kind="stable") if i not in barred[user]][:4]
        gained = sum(1 / math.log2(rank + 2) for rank, item in enumerate(order) if item in lists[user])
        ideal = sum(1 / math.log2(rank + 2) for rank in range(min(4, len(lists[user]))))
        assert found[place] == pytest.approx(gained / ideal)


def test_best_breaks_ties_by_item_and_orders_every_sign():
    scores = torch.tensor([[0.0, -0.0, 2.5, -3.0, 2.5, -torch.inf, -1e-30, 1e-30]])
    assert best(scores, 8).tolist() == [[2, 4, 7, 0, 1, 6, 3, 5]]


def test_export_keeps_every_item_in_order(tmp_path):
    split = load_split("amazon-instruments", public_sets.write("amazon-instruments", tmp_path))
    sets.write(split, tmp_path / "set.npz")
    arrays = sets.load(tmp_path / "set.npz")
    assert (arrays.name, arrays.ordered, arrays.num_items) == (split.name, True, split.num_items)
    for part in sets.PARTS:
        np.testing.assert_array_equal(getattr(arrays, part).items, getattr(split, part).items)
    whole = sets.joined(sets.joined(arrays.train, arrays.valid), arrays.test)
    known = sets.history(whole, arrays)
    for user in range(split.num_users):
        want = np.concatenate([getattr(split, part).of(user) for part in sets.PARTS])
        own = known.user == user
        np.testing.assert_array_equal(known.product[own][np.argsort(-known.age[own])], want)
        assert known.age[own].min() == 0


def test_a_set_without_an_order_has_equal_ages_and_one_without_parts_is_refused(tmp_path):
    split = load_split("gowalla", public_sets.write("gowalla", tmp_path))
    sets.write(split, tmp_path / "set.npz")
    arrays = sets.load(tmp_path / "set.npz")
    assert not arrays.ordered
    assert not sets.history(arrays.train, arrays).age.any()
    with pytest.raises(UsageError, match="no valid part"):
        sets.write(load_split("retailrocket", public_sets.write("retailrocket", tmp_path)), tmp_path / "other.npz")


def tiny(file, ordered=True, users=80, items=30, length=8):
    """Cycles through the items, written as a set."""
    start = np.random.default_rng(0).integers(0, items, users)
    whole = (start[:, None] + 3 * np.arange(length)) % items
    cuts = {"train": whole[:, :-2], "valid": whole[:, -2:-1], "test": whole[:, -1:]}
    parts = {
        f"{name}_{key}": getattr(rows_of(cut.tolist()), key)
        for name, cut in cuts.items()
        for key in ("offsets", "items")
    }
    np.savez(file, name=np.array("tiny"), ordered=np.array(ordered), num_items=np.array(items), **parts)
    return file


def lines(file):
    with open(file, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def arguments(method, file, out, *more):
    return ["--method", method, "--set", "tiny", "--npz", str(file), "--out", str(out), *more]


def test_end_to_end_on_a_machine_without_our_heavy_libraries(tmp_path):
    """As on a bare GPU machine: the libraries it lacks cannot be imported here either."""
    absent = (
        "pydantic",
        "duckdb",
        "prefect",
        "faiss",
        "torch_geometric",
        "transformers",
        "safetensors",
        "sklearn",
        "rich",
    )
    argv = arguments("sasrec", tiny(tmp_path / "tiny.npz"), tmp_path / "out", "--trials", "2", "--epochs", "3")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({absent}))\n"
        f"from tests.benchmarks.retrieval_learned import main; main({argv!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "best: trial" in done.stdout
    tried, tested = lines(tmp_path / "out/tiny-sasrec-trials.csv"), lines(tmp_path / "out/tiny-sasrec-test.csv")
    assert [line["trial"] for line in tried] == ["0", "1"]
    assert json.loads(tried[0]["setting"]) == trials.METHODS["sasrec"][0].DEFAULTS
    assert {(line["fitted"], line["ranked"], line["metric"]) for line in tested} == {
        (fitted, ranked, metric)
        for fitted in ("strict", "refit")
        for ranked in ("masked", "unmasked")
        for metric in ("recall@5", "ndcg@5", "recall@10", "ndcg@10")
    }
    chosen = max(tried, key=lambda line: float(line["value"]))
    assert {(line["trial"], line["epochs"]) for line in tested} == {(chosen["trial"], chosen["epochs"])}


def test_a_set_without_an_order_is_fitted_again_on_all_that_came_before(tmp_path):
    file = tiny(tmp_path / "tiny.npz", ordered=False)
    argv = arguments("lightgcn", file, tmp_path, "--trials", "1", "--epochs", "2", "--every", "1", "--seeds", "2")
    retrieval_learned.main([*argv, "--fixed", '{"dims": 8, "batch": 64}'])
    tested = lines(tmp_path / "tiny-lightgcn-test.csv")
    assert [(line["fitted"], line["ranked"], line["metric"], line["seed"]) for line in tested] == [
        ("refit", "masked", metric, seed) for seed in "01" for metric in ("recall@20", "ndcg@20")
    ]
    assert json.loads(tested[0]["setting"])["dims"] == 8
    with np.load(tmp_path / "tiny-lightgcn-users.npz") as users:
        assert float(tested[0]["value"]) == pytest.approx(users["refit/masked/0/recall@20"].mean(), abs=1e-5)


def test_the_test_part_takes_no_part_in_tuning_and_fitting_again_gives_the_trial(tmp_path):
    """With other test items the trials are the same; the strict fit is the trial's own, epoch for epoch."""
    arrays = sets.load(tiny(tmp_path / "tiny.npz"))
    other = Arrays(arrays.name, True, arrays.num_items, arrays.train, arrays.valid, rows_of([[0]] * 80))
    limits = trials.Limits(epochs=4)
    found = []
    for number, given in enumerate((arrays, other)):
        tuning = trials.Tuning(given, "sasrec", "cpu", limits, tmp_path / str(number), {"dims": 8, "heads": 1})
        found.append(trials.tune(tuning, 2, math.inf, lambda line: None))
    assert (found[0].value, found[0].epochs, found[0].setting) == (found[1].value, found[1].epochs, found[1].setting)
    again = tuning.fit(arrays.train, found[0].setting, 0, trials.Limits(epochs=found[0].epochs))
    value = tuning.ranking(arrays.valid, arrays.train).of(again, (10,))["recall@10"].mean()
    assert value == pytest.approx(found[0].value)


def test_random_settings_are_distinct_come_after_the_defaults_and_respect_what_is_fixed():
    for method, (module, _) in trials.METHODS.items():
        drawn = trials.settings(method, 25, 0, {"lr": 0.5})
        assert len(drawn) == 25
        assert drawn[0] == {**module.DEFAULTS, "lr": 0.5}
        assert {setting["lr"] for setting in drawn} == {0.5}
        assert len({json.dumps(setting) for setting in drawn}) == 25
        assert set(module.SPACE) <= set(module.DEFAULTS)
    assert (
        len(trials.settings("lightgcn", 99, 0, {k: v[0] for k, v in trials.lightgcn.SPACE.items() if k != "dims"})) <= 4
    )


def test_a_file_of_another_set_is_refused(tmp_path):
    argv = arguments("sasrec", tiny(tmp_path / "tiny.npz"), tmp_path)
    argv[argv.index("tiny")] = "gowalla"
    with pytest.raises(UsageError, match="holds tiny"):
        retrieval_learned.main(argv)
