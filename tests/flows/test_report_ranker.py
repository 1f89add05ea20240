"""What the report says of the ranker: honest sentences, and tables that hide nothing."""

import pytest

from flows import report_ranker
from tests.flows.report_artifacts import Artifacts


def paired(differences, interval, control=0.8):
    mean = sum(differences) / len(differences)
    seeds = [
        {"seed": seed, "ne": control + d, "control_ne": control, "difference": d, "relative": d / control}
        for seed, d in enumerate(differences)
    ]
    sd = 0.0012 if len(differences) > 1 else None
    return {
        "seeds": seeds,
        "difference": {"mean": mean, "sd": sd},
        "relative": {"mean": mean / control, "sd": sd},
        "difference_interval_95": interval,
    }


def test_gain_in_every_seed_and_beyond_the_interval_is_called_help():
    said = report_ranker.tokens_verdict(paired([-0.01, -0.012, -0.014], [-0.015, -0.004]))
    assert said.startswith("The learned tokens help the ranker.")
    assert "NE falls by 0.0120 ± 0.0012 (1.50%); lower in 3 of 3 seeds" in said
    assert said.endswith("-0.0150 to -0.0040.")


@pytest.mark.parametrize(
    ("differences", "interval", "expected"),
    [
        ([-0.01, 0.002], [-0.015, -0.004], "No clear difference"),
        ([-0.01, -0.012], [-0.015, 0.001], "No clear difference"),
        ([-0.01, -0.012], [float("nan"), float("nan")], "No clear difference"),
        ([0.01, 0.012], [0.004, 0.015], "The learned tokens do not help; they make the ranker worse"),
        ([-0.01], [-0.015, -0.004], "One seed says nothing"),
    ],
)
def test_what_is_not_shown_is_not_claimed(differences, interval, expected):
    assert expected in report_ranker.tokens_verdict(paired(differences, interval))


def test_run_without_two_arms_says_that_it_cannot_tell():
    assert "cannot tell" in report_ranker.tokens_verdict({})
    assert report_ranker.seeds({})["rows"] == []


def test_tile_gives_the_relative_change_and_both_means(tmp_path):
    artifacts = Artifacts(tmp_path, users=8)
    (tile,) = report_ranker.tile(artifacts.refs["ranker"])
    assert tile["value"] == "-1.35%"
    assert "0.7310 against 0.7410" in tile["note"]
    assert report_ranker.tile(artifacts.publish("ranker", arms=False)) == []


def test_stronger_baseline_is_named():
    summary = [
        {"model": "ranker", "arm": "tokens", "fits": 3, "ne": {"mean": 0.74, "sd": 0.001}},
        {"model": "dcnv2", "arm": "baseline", "fits": 3, "ne": {"mean": 0.73, "sd": 0.001}},
        {"model": "base_rate", "arm": "baseline", "fits": 1, "ne": {"mean": 1.0, "sd": None}},
    ]
    assert report_ranker.baseline_verdict(summary) == [
        "Its mean NE of 0.7400 is not below that of the strongest baseline, DCN-V2 (0.7300)."
    ]
    assert " is below " in report_ranker.baseline_verdict([summary[0], summary[2]])[0]
    assert report_ranker.baseline_verdict(summary[:1]) == []
    table = report_ranker.arms(summary)
    assert table["rows"][0]["cells"] == ["Ranker", "learned interest tokens", "3", "0.7400 ± 0.0010", "–", "–"]
    assert [list(row["best"]) for row in table["rows"]] == [[], [3], []]


def test_slices_average_seeds_mark_small_parts_and_survive_absent_figures():
    def part(ne, claim=True):
        return {"slice": "surface", "bucket": "mailer", "ne": ne, "rows": 1200, "positives": 600, "claim": claim}

    rows = [
        {
            "model": "ranker",
            "split": "test",
            "arm": "tokens",
            "slices": [part(0.7), part(None, False) | {"bucket": "x"}],
        },
        {"model": "ranker", "split": "test", "arm": "tokens", "slices": [part(0.8)]},
        {"model": "ranker", "split": "test", "arm": "no_tokens", "slices": [part(0.9)]},
        {"model": "dcnv2", "split": "test", "arm": "baseline", "slices": [part(0.1)]},
    ]
    found = [row["cells"] for row in report_ranker.slices(rows)["rows"]]
    assert found[0] == ["Placement", "mailer", "1,200", "600", "0.7500", "0.9000", "-0.1500", "yes"]
    assert found[1][4:] == ["–", "–", "–", "too few"]


def test_importance_is_averaged_and_sorted_with_bars_that_never_fall_below_zero():
    rows = [
        {"model": model, "arm": "tokens", "seed": seed, "group": group, "increase": increase}
        for model, seed, group, increase in (
            ("ranker", 0, "history", 0.02),
            ("ranker", 1, "history", 0.04),
            ("ranker", 0, "user id", -0.01),
            ("dcnv2", 0, "content", 0.5),
        )
    ]
    made = report_ranker.importance(rows)["rows"]
    assert [row["cells"] for row in made] == [["history", "+0.0300"], ["user id", "-0.0100"]]
    assert [row["bars"] for row in made] == [{1: 100}, {1: 0}]
