"""The ranking benchmark end to end on a tiny shop."""

import csv
import json
import shutil
import sys
from argparse import Namespace

import numpy as np
import pytest

from data import snapshot
from data.artifacts import Store
from data.errors import UsageError
from ranking.fitting import Schedule
from ranking.models import NETWORKS, Architecture, Setup
from ranking.reader import TEST, Examples
from tests.benchmarks import ranking, rows
from tests.benchmarks.ranking_quality.methods import SPACES, Method
from tests.ranking.shops import make_examples, random_shop


@pytest.fixture(scope="module")
def ref(tmp_path_factory):
    return make_examples(random_shop(users=16, products=20), tmp_path_factory.mktemp("ranking"))


def read(path):
    with open(path, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture
def bench(ref, tmp_path, monkeypatch):
    """Runs the benchmark in this process; returns its rows and its trials."""
    monkeypatch.setattr(rows, "versions_of", lambda *peers: "")
    monkeypatch.setattr(rows, "commit", lambda: "")
    monkeypatch.setattr("tests.benchmarks.rows._commit", lambda: "")
    file = tmp_path / "out" / "ranking.csv"
    file.parent.mkdir()

    def run(*options):
        where = ("--examples", str(ref.path), "--fits", str(tmp_path / "fits"), "--csv", str(file))
        monkeypatch.setattr(sys, "argv", ["ranking", *where, "--min-positives", "5", "--trial-seeds", "1", *options])
        ranking.main()
        return tuple(read(path) for path in (file, file.with_name("ranking_trials.csv")) if path.exists())

    return run


def test_every_model_is_tuned_tested_and_compared(bench, ref, monkeypatch):
    pytest.importorskip("lightgbm")
    monkeypatch.setitem(SPACES, "logistic_regression", {"strength": (0.1,), "buckets": (1 << 12,)})
    names = [*SPACES, "ranker-no_tokens", "ranker-level_1", "logistic_regression-tokens", "gradient_boosting-tokens"]
    names += ["dcnv2-tokens", "hstu-no_tokens"]
    found, trials = bench("--methods", ",".join(names), "--trials", "1", "--seeds", "1")
    assert sorted(row["method"] for row in trials) == sorted(names)
    assert len({row["rows"] for row in trials}) == 1, "one budget of training rows"
    by = {(row["peer"], row["metric"]): row for row in found if row["what"] == f"examples-{ref.key[:8]}, test"}
    for name in names:
        assert 0.3 < float(by[name, "NE"]["p50"]) < 3.0
        assert {"AUC", "GAUC", "calibration", "calibration, decile 10", "NE, product events known 21+"} <= {
            metric for peer, metric in by if peer == name
        }
    assert float(by["base_rate", "GAUC"]["p50"]) == 0.5
    gap = by["din - ranker", "NE difference"]
    assert float(gap["p20"]) <= float(gap["p50"]) <= float(gap["p80"])
    expected = float(by["din", "NE"]["p50"]) - float(by["ranker", "NE"]["p50"])
    spread = [float(by["din - ranker", f"NE difference, {share} %"]["p50"]) for share in (2.5, 97.5)]
    assert spread[0] < expected < spread[1]
    assert ("din - ranker", "GAUC difference") in by
    assert ("din - ranker", "NE difference, advertiser impressions 101-1000") in by
    examples = Examples.open(ref)
    positives = int(examples.columns["label"][examples.rows(TEST)].sum())
    assert float(by["", "positives"]["p50"]) == positives


def test_a_resumed_run_tries_and_tests_nothing_again(bench, monkeypatch):
    asked = ("--methods", "dcnv2,popularity_by_surface", "--reference", "dcnv2", "--trials", "2", "--seeds", "2")
    asked += ("--trial-seeds", "2")
    found, trials = bench(*asked)
    assert [row["trial"] for row in trials] == ["0", "1", "0", "1"]
    settings = [row["setting"] for row in trials if row["method"] == "dcnv2"]
    assert json.loads(settings[0]) == {name: values[0] for name, values in SPACES["dcnv2"].items()}
    assert settings[0] != settings[1]
    assert [row["fits"] for row in trials] == ["2", "2", "1", "1"], "popularity is the same with every seed"

    def refuse(*_):
        raise AssertionError("nothing is left to be fitted")

    monkeypatch.setattr(Method, "fit", refuse)
    again, logged = bench(*asked, "--resume")
    assert logged == trials
    assert again[len(found) :] == found


def test_processes_may_share_a_search(bench, tmp_path):
    asked = ("--methods", "popularity_by_surface", "--reference", "base_rate", "--trials", "5")
    whole, trials = bench(*asked)
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "out").mkdir()
    (logged,) = [bench(*asked, "--shard", shard)[-1] for shard in ("0/2", "1/2")][1:]
    again, still = bench(*asked, "--resume")
    assert still == logged, "nothing is left to be tried"
    assert sorted(row["setting"] for row in logged) == sorted(row["setting"] for row in trials)
    assert again == whole


def test_the_best_of_validation_is_chosen_and_the_test_is_scored_with_it(ref, tmp_path):
    examples = Examples.open(ref)
    setup = Setup.open(examples, 60_000, Architecture(), Schedule())
    method = Method.named("popularity_by_surface", setup)
    search = ranking.Search("shop", setup, 6, 0, tmp_path / "trials.csv", tmp_path / "fits")
    setting, value = search.choose(method)
    logged = read(tmp_path / "trials.csv")
    assert value == min(float(row["value"]) for row in logged)
    assert json.dumps(setting) in [row["setting"] for row in logged if float(row["value"]) == value]
    logits = search.test(method, setting, 0)
    expected, _ = method.fit(setup, setting, 0).logits(examples.rows(TEST))
    assert np.array_equal(logits, expected)


def test_a_setting_changes_its_own_fields_only(ref, monkeypatch):
    seen = []
    monkeypatch.setattr("tests.benchmarks.ranking_quality.methods.fit_network_of", lambda setup, *_: seen.append(setup))
    setup = Setup.open(Examples.open(ref), 60_000, Architecture(category_buckets=99), Schedule(checks=4))
    Method.named("din", setup).fit(setup, {"width": 16, "lr": 0.5}, 0)
    assert seen[0].architecture == Architecture(category_buckets=99, width=16)
    assert seen[0].schedule == Schedule(checks=4, lr=0.5)


def test_every_setting_is_a_field_and_the_default_comes_first():
    for name in NETWORKS:
        for field, values in SPACES[name].items():
            config = Architecture() if field in Architecture.model_fields else Schedule()
            assert values[0] == getattr(config, field)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--shard", "2/2"), "0 <= i < n"),
        (("--methods", "dni"), "did you mean 'din'"),
        (("--methods", "din-token"), "did you mean 'tokens'"),
        (("--methods", "base_rate-tokens"), "reads no interest tokens"),
        (("--trials", "0"), "--trials of at least 1"),
        (("--trial-seeds", "0"), "--trial-seeds of at least 1"),
        (("--store", "nowhere"), "got both or neither"),
    ],
)
def test_a_wrong_option_says_what_is_known(bench, capsys, options, says):
    with pytest.raises(SystemExit) as end:
        bench(*options)
    assert end.value.code == UsageError.exit_code
    assert says in capsys.readouterr().err


def test_the_examples_are_named_by_a_store_or_by_their_folder(bench, ref, tmp_path, capsys):
    store = Store(ref.path.parents[1])
    snapshot.publish(store, {"examples": ref}, "v", "m", 0)
    assert ranking.opened(Namespace(examples=None, store=store.root, snapshot=None)) == ref
    with pytest.raises(SystemExit) as end:
        bench("--examples", str(tmp_path))
    assert end.value.code == 3
    assert "no manifest.json" in capsys.readouterr().err
