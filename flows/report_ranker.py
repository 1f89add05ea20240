"""The ranker's part of the report: a verdict in words on what the tokens are worth, then the figures behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from data.artifacts import ArtifactRef
from flows.report_tables import Row, Table, figure, table

_MODELS = {
    "ranker": "Ranker",
    "base_rate": "Average rate for all",
    "popularity_by_surface": "Popularity by placement",
    "logistic_regression": "Logistic regression",
    "gradient_boosting": "Gradient boosted trees",
    "dcnv2": "DCN-V2",
    "din": "Deep Interest Network",
    "hstu": "HSTU",
}
_ARMS = {"tokens": "learned interest tokens", "no_tokens": "as many tokens drawn by hash", "baseline": "none"}
_SLICES = {
    "surface": "Placement",
    "user_history": "Earlier events of the person",
    "product_popularity": "Earlier events of the product",
}


def section(ranker: ArtifactRef) -> tuple[list[str], list[Table]]:
    """Sentences and tables on the test rows, from the ranker's comparison.json, evaluation.json and importance.json."""
    comparison = ranker.json("comparison.json")
    paired, summary = comparison.get("tokens_vs_no_tokens") or {}, comparison["summary"]
    tables = [
        arms(summary),
        seeds(paired),
        slices(ranker.json("evaluation.json")),
        importance(ranker.json("importance.json")),
    ]
    return [tokens_verdict(paired), *baseline_verdict(summary)], [made for made in tables if made["rows"]]


def tokens_verdict(paired: Mapping[str, Any]) -> str:
    """What learned tokens change, seed by seed: a claim only when all seeds agree and the interval leaves out zero."""
    if not paired:
        return "This run has no ranker trained both with and without learned tokens, so it cannot tell."
    differences = [row["difference"] for row in paired["seeds"]]
    mean, (low, high) = paired["difference"]["mean"], paired["difference_interval_95"]
    agreed = all(d < 0 for d in differences) or all(d > 0 for d in differences)
    if not agreed or not (low > 0 or high < 0):
        said = "No clear difference: the learned tokens neither help nor hurt the ranker beyond chance"
    else:
        said = (
            "The learned tokens help the ranker"
            if mean < 0
            else "The learned tokens do not help; they make the ranker worse"
        )
    change = f"NE {'falls' if mean < 0 else 'rises'} by {abs(mean):.4f}{_spread(paired['difference'])}"
    count = sum(d < 0 for d in differences)
    lone = " One seed says nothing of the noise between seeds." if len(differences) == 1 else ""
    return (
        f"{said}. Against an equally large ranker with tokens drawn by hash, {change} "
        f"({abs(paired['relative']['mean']):.2%}); lower in {count} of {len(differences)} seeds; "
        f"95 % interval over people {low:+.4f} to {high:+.4f}.{lone}"
    )


def tile(ranker: ArtifactRef) -> list[dict[str, str]]:
    """The header's one figure: the relative change of NE with learned tokens; nothing without both arms."""
    paired = ranker.json("comparison.json").get("tokens_vs_no_tokens")
    if not paired:
        return []
    mine, other = (fmean(row[name] for row in paired["seeds"]) for name in ("ne", "control_ne"))
    note = f"{mine:.4f} against {other:.4f} with tokens drawn by hash; lower is better"
    return [
        {"value": f"{paired['relative']['mean']:+.2%}", "label": "ranker's log loss (NE) with tokens", "note": note}
    ]


def baseline_verdict(summary: Sequence[Row]) -> list[str]:
    """How the ranker with tokens stands against the strongest baseline; nothing when either is missing."""
    baselines = [row for row in summary if row["arm"] == "baseline" and row.get("ne")]
    ours = [row for row in summary if row["arm"] == "tokens" and row.get("ne")]
    if not baselines or not ours:
        return []
    best = min(baselines, key=lambda row: row["ne"]["mean"])
    mine, other = ours[0]["ne"]["mean"], best["ne"]["mean"]
    stands = "below" if mine < other else "not below"
    name = _MODELS.get(best["model"], best["model"])
    return [f"Its mean NE of {mine:.4f} is {stands} that of the strongest baseline, {name} ({other:.4f})."]


def arms(summary: Sequence[Row]) -> Table:
    """Every model and arm: mean and deviation over seeds of NE, AUC and calibration."""
    best = min((row["ne"]["mean"] for row in summary if row.get("ne")), default=None)
    rows = [
        {
            "cells": [
                _MODELS.get(row["model"], row["model"]),
                _ARMS.get(row["arm"], row["arm"]),
                figure(row["fits"]),
                *(_measured(row.get(name)) for name in ("ne", "auc", "calibration")),
            ],
            "strong": row["arm"] == "tokens",
            "best": [3] if row.get("ne") and row["ne"]["mean"] == best else [],
        }
        for row in summary
    ]
    return table(
        "Rankers on the test weeks, which none of them saw",
        "NE, normalised entropy: log loss over that of always guessing the average rate; lower is better, and 1 is no "
        "better than guessing. AUC: how often a chosen product scores above one that was not; higher is better, 0.5 is "
        "chance. Calibration: predicted over observed choices; 1 is right. Means over seeds ± standard deviation.",
        ["Model", "Interest tokens", "Fits", "NE", "AUC", "Calibration"],
        rows,
        texts=2,
    )


def seeds(paired: Mapping[str, Any]) -> Table:
    """NE of both arms for each seed, and their difference."""
    rows = [
        {
            "cells": [
                f"Seed {row['seed']}",
                *(f"{row[name]:.4f}" for name in ("ne", "control_ne")),
                f"{row['difference']:+.4f}",
                f"{row['relative']:+.2%}",
            ]
        }
        for row in paired.get("seeds", [])
    ]
    return table(
        "With and without, seed by seed",
        "Both rankers start from the same weights and see the same batches; only the tokens differ. Below zero means "
        "that the learned tokens help.",
        ["Seed", "NE, learned tokens", "NE, hashed tokens", "Difference", "Relative"],
        rows,
    )


def slices(rows: Sequence[Row]) -> Table:
    """NE of both arms by placement, by how much is known of the person and of the product; means over seeds."""
    found: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for row in rows:
        for part in row["slices"] if row["model"] == "ranker" and row["split"] == "test" else ():
            found.setdefault((part["slice"], part["bucket"]), {}).setdefault(row["arm"], []).append(part)
    return table(
        "Where the tokens matter",
        "NE on parts of the test rows, each against the average rate of its own part. Parts with under 500 choices "
        "are marked: they are too small for a claim.",
        [
            "Part",
            "Bucket",
            "Rows",
            "Choices",
            "NE, learned tokens",
            "NE, hashed tokens",
            "Difference",
            "Enough for a claim",
        ],
        [{"cells": _slice(*key, parts)} for key, parts in found.items()],
        texts=2,
    )


def _slice(dimension: str, bucket: str, parts: Mapping[str, Sequence[Row]]) -> list[str]:
    sample = next(iter(parts.values()))[0]
    mine, other = (_mean([part["ne"] for part in parts.get(arm, ())]) for arm in ("tokens", "no_tokens"))
    gap = "–" if mine is None or other is None else f"{mine - other:+.4f}"
    counts = [figure(sample["rows"]), figure(sample["positives"])]
    claim = "yes" if sample["claim"] else "too few"
    return [_SLICES.get(dimension, dimension), bucket, *counts, figure(mine, 4), figure(other, 4), gap, claim]


def importance(rows: Sequence[Row]) -> Table:
    """By how much NE rises on the validation rows when a group of inputs is withheld; means over seeds."""
    groups: dict[str, list[float]] = {}
    for row in rows:
        if row.get("model", "ranker") == "ranker" and row["arm"] == "tokens" and row["increase"] is not None:
            groups.setdefault(row["group"], []).append(row["increase"])
    means = sorted(((fmean(values), group) for group, values in groups.items()), reverse=True)
    largest = max((mean for mean, _ in means), default=0.0) or 1.0
    return table(
        "What the ranker leans on",
        "Rise of NE on the validation weeks when one group of inputs is withheld from the trained ranker: the larger, "
        "the more it relied on that group.",
        ["Inputs withheld", "Rise of NE"],
        [{"cells": [group, f"{mean:+.4f}"], "bars": {1: max(0, round(100 * mean / largest))}} for mean, group in means],
    )


def _measured(value: Mapping[str, Any] | None) -> str:
    return "–" if value is None else f"{value['mean']:.4f}{_spread(value)}"


def _spread(value: Mapping[str, Any]) -> str:
    return "" if value["sd"] is None else f" ± {value['sd']:.4f}"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and value == value]
    return fmean(known) if known else None
