from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from safetensors.torch import load_file

from data.artifacts import ArtifactRef, Store, sha256_file
from data.schema import to_micros
from ranking import models, train
from ranking.fitting import Schedule
from ranking.importance import WITHHELD
from ranking.models import Architecture, Fit, Setup, evaluate_fit
from ranking.reader import TEST, Examples
from ranking.train import Config
from tests.ranking.shops import DAY, T0, event, make_examples, run_stage, shop_of, token

SMALL = Architecture(
    width=8, history_len=6, user_buckets=64, product_buckets=64, advertiser_buckets=16, category_buckets=16
)
CONFIG = Config(architecture=SMALL, schedule=Schedule(batch_rows=64, checks=2), seeds=(0, 1), max_rows=2000)


@pytest.fixture(scope="module")
def ranker(examples_ref: ArtifactRef, tmp_path_factory: pytest.TempPathFactory) -> ArtifactRef:
    return run_stage(tmp_path_factory.mktemp("ranker"), "ranker", train, CONFIG, {"examples": examples_ref})


def _hashes(ref: ArtifactRef) -> Mapping[str, str]:
    return {name: file["sha256"] for name, file in ref.manifest["files"].items()}


def test_every_model_arm_and_seed_is_judged_on_validation_and_test(ranker: ArtifactRef) -> None:
    rows = ranker.json("evaluation.json")
    fits = {(row["model"], row["arm"], row["seed"]) for row in rows}
    assert fits == {
        *(("ranker", arm, seed) for arm in ("tokens", "no_tokens") for seed in (0, 1)),
        *(("dcnv2", "baseline", seed) for seed in (0, 1)),
        *((name, "baseline", 0) for name in ("base_rate", "popularity_by_surface", "logistic_regression")),
    }
    for row in rows:
        assert {"ne", "auc", "calibration", "rows", "positives", "parameters", "slices", "deciles", "deep"} <= set(row)
        assert (row["slices"] != []) == (row["split"] == "test")
        assert (row["deep"] is None) == (row["model"] not in ("ranker", "dcnv2"))
    assert len(rows) == 2 * len(fits)


def test_both_arms_are_equally_large(ranker: ArtifactRef) -> None:
    sizes = {row["parameters"] for row in ranker.json("evaluation.json") if row["model"] == "ranker"}
    assert len(sizes) == 1
    weights = load_file(ranker.file("models/ranker-tokens-0.safetensors"))
    assert sum(value.numel() for value in weights.values()) == sizes.pop()


def test_predictions_hold_every_test_row_once_a_fit(ranker: ArtifactRef, examples_ref: ArtifactRef) -> None:
    table = ranker.table("predictions.parquet")
    examples = Examples.open(examples_ref)
    test = examples.rows(TEST)
    ids = examples_ref.table("ids.parquet")["event_id"].take(test)
    fits = table.group_by(["model", "arm", "seed"]).aggregate([]).to_pylist()
    assert len(fits) == 9
    for fit in fits:
        mine = table.filter(pc.and_(pc.equal(table["model"], fit["model"]), pc.equal(table["arm"], fit["arm"])))
        mine = mine.filter(pc.equal(mine["seed"], fit["seed"]))
        assert mine["event_id"].to_pylist() == ids.to_pylist()
        score = mine["score"].to_numpy()
        assert np.all((score > 0) & (score < 1))
        (row,) = [r for r in ranker.json("evaluation.json") if r["split"] == "test" and fit.items() <= r.items()]
        weights, labels = 1 / examples.columns["sample_prob"][test], examples.columns["label"][test]
        assert (weights * score).sum() / (weights * labels).sum() == pytest.approx(row["calibration"], rel=1e-4)


def test_a_ranker_says_which_public_id_each_row_of_its_tables_is(
    ranker: ArtifactRef, examples_ref: ArtifactRef
) -> None:
    told = ranker.table("primitives.parquet")
    assert told.equals(examples_ref.table("tokens/primitives.parquet"))
    levels = Examples.open(examples_ref).levels
    assert [told["level"].to_pylist().count(level.level) for level in levels] == [level.size for level in levels]


def test_the_comparison_pairs_the_arms_by_seed(ranker: ArtifactRef) -> None:
    found = ranker.json("comparison.json")
    paired = found["tokens_vs_no_tokens"]
    assert [row["seed"] for row in paired["seeds"]] == [0, 1]
    low, high = paired["difference_interval_95"]
    assert low < high
    summary = {(row["model"], row["arm"]): row for row in found["summary"]}
    assert summary["ranker", "tokens"]["ne"]["mean"] == pytest.approx(np.mean([row["ne"] for row in paired["seeds"]]))
    assert summary["base_rate", "baseline"]["ne"]["sd"] is None
    assert ranker.metrics["comparison"] == found
    assert set(ranker.metrics["seconds"]) == set(ranker.json("ranker.json")["fits"])


def test_importance_names_every_group_of_inputs(ranker: ArtifactRef) -> None:
    rows = ranker.json("importance.json")
    assert {row["group"] for row in rows} == set(WITHHELD)
    increases = [row["increase"] for row in rows]
    assert increases == sorted(increases, reverse=True)
    assert any(value != 0 for value in increases)


def test_a_killed_run_repeats_at_most_one_fit_and_ends_alike(
    ranker: ArtifactRef, examples_ref: ArtifactRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[str] = []

    def fit(setup: Setup, fit: Fit, seed: int, explain: bool = False) -> Any:
        fitted.append(fit.name)
        if fitted.count("ranker-no_tokens-0") == 1 and fit.name == "ranker-no_tokens-0":
            raise KeyboardInterrupt
        return evaluate_fit(setup, fit, seed, explain)

    monkeypatch.setattr(train, "evaluate_fit", fit)
    with pytest.raises(KeyboardInterrupt):
        run_stage(tmp_path, "ranker", train, CONFIG, {"examples": examples_ref})
    assert Store(tmp_path).find("ranker", "k") is None
    resumed = run_stage(tmp_path, "ranker", train, CONFIG, {"examples": examples_ref})
    assert fitted.count("ranker-tokens-0") == 1, "what had been fitted was kept"
    assert _hashes(resumed) == _hashes(ranker)


def test_another_seed_of_the_run_gives_other_rankers(
    ranker: ArtifactRef, examples_ref: ArtifactRef, tmp_path: Path
) -> None:
    config = CONFIG.model_copy(update={"seeds": (0,), "baselines": ()})
    other = run_stage(tmp_path, "ranker", train, config, {"examples": examples_ref}, seed=1)
    name = "models/ranker-tokens-0.safetensors"
    assert sha256_file(other.file(name)) != sha256_file(ranker.file(name))
    assert [row["model"] for row in other.json("comparison.json")["summary"]] == ["ranker", "ranker"]


def test_a_run_with_one_arm_makes_no_comparison(examples_ref: ArtifactRef, tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"seeds": (0,), "baselines": (), "arms": ("tokens",)})
    ref = run_stage(tmp_path, "ranker", train, config, {"examples": examples_ref})
    assert "tokens_vs_no_tokens" not in ref.json("comparison.json")


def _planted(store: Path) -> Examples:
    """Bought when user and product share a primitive; ids, categories and contents say nothing, each pair is new."""
    rng = np.random.default_rng(0)
    users, products, kinds = 160, 200, 8
    taste, nature = rng.integers(kinds, size=users), rng.integers(kinds, size=products)
    events, tokens, start = [], [], to_micros(T0)
    for entity, numbers, letter in (("user", taste, "u"), ("product", nature, "p")):
        for number, kind in enumerate(numbers):
            tokens += token(entity, f"{letter}-{number}", start, {"L1-0000": 1.0, f"L2-{kind:04d}": 1.0})
    for user in range(users):
        for number, product in enumerate(rng.choice(products, 30, replace=False).tolist()):
            ts = start + number * 2 * DAY + user
            events.append(event("impression", f"u-{user}", f"p-{product}", ts, f"r-{user}-{number}"))
            if taste[user] == nature[product]:
                events.append(event("purchase", f"u-{user}", f"p-{product}", ts, f"r-{user}-{number}"))
    return Examples.open(make_examples(shop_of(events, tokens), store))


def test_tokens_win_where_only_tokens_know(tmp_path: Path) -> None:
    schedule = Schedule(batch_rows=128, epochs=4, lr=0.01, table_lr=0.01)
    size = SMALL.model_copy(update={"width": 16, "user_buckets": 512, "product_buckets": 512})
    setup = Setup.open(_planted(tmp_path), 10**6, size, schedule)
    ne = {
        arm: evaluate_fit(setup, Fit("ranker", arm, 0), seed=0)[1]["rows"][-1]["ne"] for arm in ("tokens", "no_tokens")
    }
    assert ne["tokens"] < 0.5
    assert ne["no_tokens"] > 0.9


def test_figures_are_json_without_nan(ranker: ArtifactRef) -> None:
    for name in ("evaluation.json", "comparison.json", "importance.json", "ranker.json"):
        json.loads(ranker.file(name).read_text(), parse_constant=pytest.fail)


def test_the_test_window_never_chooses_a_model(examples_ref: ArtifactRef, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup.open(Examples.open(examples_ref), 2000, SMALL, CONFIG.schedule)
    labels = np.array(setup.examples.columns["label"])
    scored = {}
    for flip in (False, True):
        changed = labels.copy()
        if flip:
            changed[setup.examples.rows(TEST)] ^= 1
        monkeypatch.setitem(setup.examples.columns, "label", changed)
        for model in ("ranker", "logistic_regression", "popularity_by_surface"):
            tensors, _ = models.evaluate_fit(setup, Fit(model, "tokens", 0), seed=0)
            scored[model, flip] = tensors["test"]
    for model in ("ranker", "logistic_regression", "popularity_by_surface"):
        assert scored[model, False].equal(scored[model, True]), model
