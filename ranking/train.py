"""Stage ranker: two arms of the target-aware ranker and its baselines, fitted on [T0, T1), judged once from T2 on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from pydantic import Field

from data import checkpoint
from data.artifacts import ArtifactRef, OutputDir
from data.context import Metrics, RunContext, StageConfig, derive_seed
from ranking.compare import check_equal_parameters, mean_and_sd, paired, user_interval
from ranking.evaluate import Floats, sigmoid
from ranking.fitting import Schedule
from ranking.models import NETWORKS, Architecture, Fit, Setup, evaluate_fit
from ranking.reader import TEST, Examples
from ranking.threads import one_thread

PREDICTIONS = pa.schema(
    [
        ("event_id", pa.string()),
        ("model", pa.string()),
        ("arm", pa.string()),
        ("seed", pa.int32()),
        ("score", pa.float32()),
    ]
)
"""Probability that the impression was bought on the visit, for every test row and fit."""

Baseline = Literal[
    "base_rate", "popularity_by_surface", "logistic_regression", "gradient_boosting", "dcnv2", "din", "hstu"
]


class Config(StageConfig):
    """Arms, seeds, size and training of the rankers."""

    arms: tuple[Literal["tokens", "no_tokens"], ...] = Field(
        default=("tokens", "no_tokens"),
        description="interest tokens learned, or drawn by hash of the id (same tables, parameters and compute)",
    )
    baselines: tuple[Baseline, ...] = Field(
        default=("base_rate", "popularity_by_surface", "logistic_regression", "dcnv2"),
        description="rankers to compare with; networks among them are fitted once a seed",
    )
    seeds: tuple[int, ...] = Field(default=(0, 1, 2), min_length=1, description="seeds, paired between the arms")
    max_rows: int = Field(
        default=60_000,
        ge=1,
        description="training rows [count], chosen by hash: positives first, up to half, then negatives",
    )
    architecture: Architecture = Field(default=Architecture(), description="size of the networks")
    schedule: Schedule = Field(default=Schedule(), description="how the networks are trained")


def run(config: Config, inputs: Mapping[str, ArtifactRef], out: OutputDir, ctx: RunContext) -> Metrics:
    """Fit every model, arm and seed; write models/, ranker.json, evaluation.json, comparison.json, predictions.parquet.

    primitives.parquet says which public id each row of the interest tables stands for, so that a ranker can be read
    under a later vocabulary: an id that is kept there means the same interest.
    Each finished fit is kept in the work folder, so a killed run repeats at most one. Time grows with
    fits x max_rows x epochs; memory with the embedding tables and one batch, examples stay on disk.
    Networks are fitted on one thread: their operations are too small to share, and `ctx.threads` changes no bit.
    Raises BadDataError when the two arms differ in size.
    """
    setup = Setup.open(Examples.open(inputs["examples"]), config.max_rows, config.architecture, config.schedule)
    outcomes, plan = [], _plan(config)
    with one_thread(), ctx.progress.step("fit rankers", len(plan), "fits") as step:
        for fit in plan:
            outcomes.append(_outcome(setup, fit, fit == plan[0], out, ctx))
            step.advance()
    check_equal_parameters({o.fit.arm: o.state["rows"][0]["parameters"] for o in outcomes if o.fit.model == "ranker"})
    out.adopt(inputs["examples"], "tokens/primitives.parquet", "primitives.parquet")
    return _write(config, setup, outcomes, out, ctx)


@dataclass(frozen=True)
class Outcome:
    """A finished fit: its tensors (weights under "model.", test logits under "test") and JSON-able figures."""

    fit: Fit
    tensors: dict[str, torch.Tensor]
    state: dict[str, Any]

    @property
    def test(self) -> Floats:
        """Logits float64 of the test rows, in row order."""
        logits: Floats = self.tensors["test"].numpy()
        return logits


def _plan(config: Config) -> list[Fit]:
    fits = [Fit("ranker", arm, seed) for seed in config.seeds for arm in config.arms]
    for model in config.baselines:
        seeds = config.seeds if model in NETWORKS else config.seeds[:1]
        fits += [Fit(model, "baseline", seed) for seed in seeds]
    return fits


def _outcome(setup: Setup, fit: Fit, explain: bool, out: OutputDir, ctx: RunContext) -> Outcome:
    """The fit from the work folder, or made now and left there."""
    path = out.work / "fits" / f"{fit.name}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    if (kept := checkpoint.load(path)) is None:
        started = time.monotonic()
        tensors, state = evaluate_fit(setup, fit, derive_seed(ctx.seed, "ranker", fit.seed), explain)
        state["seconds"] = round(time.monotonic() - started, 2)
        checkpoint.save(path, tensors, state)
        ctx.progress.say(f"  {fit.name}: {state['seconds']} s, validation NE {state['rows'][0]['ne']}")
        kept = tensors, state
    return Outcome(fit, *kept)


def _write(config: Config, setup: Setup, outcomes: Sequence[Outcome], out: OutputDir, ctx: RunContext) -> Metrics:
    rows = [row for outcome in outcomes for row in outcome.state["rows"]]
    comparison = _comparison(setup, outcomes, ctx)
    out.write_json("evaluation.json", rows)
    out.write_json("comparison.json", comparison)
    out.write_json("importance.json", [row for o in outcomes for row in o.state.get("importance", [])])
    for outcome in outcomes:
        weights = {name[6:]: value for name, value in outcome.tensors.items() if name.startswith("model.")}
        out.write_tensors(f"models/{outcome.fit.name}.safetensors", weights)
    about = {"config": config.result_fields(), "fits": {o.fit.name: o.state["about"] for o in outcomes}}
    out.write_json("ranker.json", {**about, "levels": [asdict(level) for level in setup.examples.levels]})
    out.write_batches("predictions.parquet", PREDICTIONS, _predictions(setup.examples, outcomes))
    seconds = {outcome.fit.name: outcome.state["seconds"] for outcome in outcomes}
    return {"comparison": comparison, "seconds": seconds, "training_rows": len(setup.sample.train)}


def _predictions(examples: Examples, outcomes: Sequence[Outcome]) -> Iterator[pa.Table]:
    ids = examples.ref.table("ids.parquet")["event_id"].take(pa.array(examples.rows(TEST)))
    for outcome in outcomes:
        count, fit = len(ids), outcome.fit
        yield pa.table(
            {
                "event_id": ids,
                "model": pa.repeat(fit.model, count),
                "arm": pa.repeat(fit.arm, count),
                "seed": pa.repeat(pa.scalar(fit.seed, pa.int32()), count),
                "score": sigmoid(outcome.test).astype(np.float32),
            },
            PREDICTIONS,
        )


def _comparison(setup: Setup, outcomes: Sequence[Outcome], ctx: RunContext) -> dict[str, Any]:
    """Mean and deviation over seeds of every model and arm on the test, and the arms against each other."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.fit.model, outcome.fit.arm), []).append(outcome)
    summary = []
    for (model, arm), members in groups.items():
        tested = [member.state["rows"][-1] for member in members]
        defined = {
            name: [row[name] for row in tested if row[name] is not None] for name in ("ne", "auc", "calibration")
        }
        figures = {name: mean_and_sd(values) for name, values in defined.items() if values}
        summary.append({"model": model, "arm": arm, "fits": len(members), **figures})
    arms = {arm: groups.get(("ranker", arm), []) for arm in ("tokens", "no_tokens")}
    return {"summary": summary, **({"tokens_vs_no_tokens": _paired(setup, arms, ctx)} if all(arms.values()) else {})}


def _paired(setup: Setup, arms: Mapping[str, Sequence[Outcome]], ctx: RunContext) -> dict[str, Any]:
    by_seed = {
        arm: {o.fit.seed: o.state["rows"][-1]["ne"] for o in members if o.state["rows"][-1]["ne"] is not None}
        for arm, members in arms.items()
    }
    rows, columns = setup.examples.rows(TEST), setup.examples.columns
    if not by_seed["tokens"]:
        return {}
    interval = user_interval(
        [o.test for o in arms["tokens"]],
        [o.test for o in arms["no_tokens"]],
        np.asarray(columns["label"][rows]),
        1.0 / columns["sample_prob"][rows].astype(np.float64),
        np.asarray(columns["user"][rows]),
        derive_seed(ctx.seed, "ranker", "bootstrap"),
    )
    return {**paired(by_seed["tokens"], by_seed["no_tokens"]), "difference_interval_95": interval}
