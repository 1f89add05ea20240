"""The loop of learned baselines: it stops in time and early enough, keeps the best, and needs little to be imported."""

import math
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from data.errors import StrataError, UsageError
from hierarchy.baselines.fitting import Limits, Vectors, train

ROOT = Path(__file__).resolve().parents[2]
NOWHERE = Vectors(torch.zeros(1, 1), torch.zeros(1, 1))


class Counter(torch.nn.Module):
    """A model whose one parameter counts its steps."""

    def __init__(self):
        super().__init__()
        self.steps = torch.nn.Parameter(torch.zeros(()))

    def epoch(self):
        for _ in range(2):
            with torch.no_grad():
                self.steps += 1
            yield torch.tensor(1.0)


def course(values=None, **limits):
    """Run with validation values given in turn; (course, steps in the parameters that were kept)."""
    model, told = Counter(), iter(values or ())
    validate = None if values is None else lambda vectors: next(told)
    return train(model, model.epoch, lambda: NOWHERE, Limits(**limits), validate), model.steps.item()


def test_it_stops_after_values_that_are_no_better_and_keeps_the_best():
    went, steps = course([0.1, 0.3, 0.2, 0.3, 0.9], epochs=9, patience=2)
    assert (went.epochs, went.value, len(went.losses)) == (2, 0.3, 4)
    assert steps == 4, "the parameters are those of epoch 2"


def test_validation_comes_every_few_epochs_and_after_the_last():
    went, steps = course([0.1, 0.2], epochs=5, every=3)
    assert (went.epochs, went.value, steps) == (5, 0.2, 10)


def test_without_validation_it_runs_to_the_end():
    went, steps = course(epochs=3)
    assert (went.epochs, steps) == (3, 6)
    assert math.isnan(went.value)


def test_the_clock_ends_it_in_the_midst_of_an_epoch():
    went, steps = course([0.4], epochs=100, seconds=0.0)
    assert (went.epochs, went.value, steps) == (1, 0.4, 1)


def test_an_epoch_that_the_clock_cuts_is_dropped_when_there_is_an_answer():
    model = Counter()

    def slow():
        for loss in model.epoch():
            time.sleep(0.1 if model.steps > 2 else 0)
            yield loss

    went = train(model, slow, lambda: NOWHERE, Limits(seconds=0.1), lambda vectors: 0.5)
    assert (went.epochs, model.steps.item(), len(went.losses)) == (1, 2, 1)


def test_a_loss_that_is_no_number_ends_it():
    model, losses = Counter(), iter([1.0, math.nan])

    def epoch():
        yield torch.tensor(next(losses))

    assert train(model, epoch, lambda: NOWHERE, Limits(), lambda vectors: 0.5).epochs == 1
    losses = iter([1.0, math.inf])
    with pytest.raises(StrataError, match="lower the learning rate"):
        train(model, epoch, lambda: NOWHERE, Limits(), None)


def test_limits_that_allow_nothing_are_refused():
    with pytest.raises(UsageError, match="'patience'"):
        Limits(patience=0)


def test_learned_baselines_need_no_more_than_a_gpu_machine_has():
    heavy = (
        "pydantic",
        "duckdb",
        "prefect",
        "faiss",
        "torch_geometric",
        "transformers",
        "sklearn",
        "threadpoolctl",
        "rich",
    )
    modules = "lightgcn, sasrec, dropoutnet"
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({heavy}))\n"
        f"from hierarchy.baselines import {modules}; import hierarchy.recall; print('fine')"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.stdout.strip() == "fine", result.stderr
