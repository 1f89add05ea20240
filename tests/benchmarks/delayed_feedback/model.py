"""Logistic regression on one-hot codes and numbers, fitted by Newton's method to labels and weights of rows."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from ranking.delayed import Delayed
from ranking.evaluate import Floats, sigmoid
from tests.benchmarks.delayed_feedback.log import Log

_RIDGE, _STEPS, _ENOUGH = 2.0, 25, 1e-4  # steps shrink quadratically: after one of 1e-4 come 1e-8


def design(log: Log) -> sparse.csr_matrix:
    """(n, columns): an intercept, a one for each code, the numbers."""
    (count, num_codes), num_numbers = log.codes.shape, log.numbers.shape[1]
    starts = np.cumsum([1, *log.sizes])
    places = [np.zeros((count, 1)), starts[:-1] + log.codes, np.tile(starts[-1] + np.arange(num_numbers), (count, 1))]
    columns = np.concatenate(places, axis=1).astype(np.int32)
    values = np.concatenate([np.ones((count, 1 + num_codes)), log.numbers], axis=1)
    offsets = np.arange(count + 1) * columns.shape[1]
    return sparse.csr_matrix((values.ravel(), columns.ravel(), offsets), (count, starts[-1] + num_numbers))


def fit(inputs: sparse.csr_matrix, rows: Delayed, start: Floats | None = None) -> Floats:
    """(columns,) coefficients that minimise the sum of weight * (softplus(z) - label z), plus a ridge.

    `start` saves steps. Both parts are convex for labels of any size: the labels are in the linear term only.
    """
    kept = np.flatnonzero(rows.weight)
    inputs, label, weight = inputs[kept], rows.label[kept].astype(np.float64), rows.weight[kept].astype(np.float64)
    ridge = np.full(inputs.shape[1], _RIDGE)
    ridge[0] = 1e-6  # the intercept is free
    found = np.zeros(inputs.shape[1]) if start is None else start.copy()
    if start is None:
        rate = np.clip((weight * label).sum() / weight.sum(), 1e-6, 1 - 1e-6)
        found[0] = np.log(rate / (1 - rate))
    for _ in range(_STEPS):
        probability = sigmoid(inputs @ found)
        gradient = inputs.T @ (weight * (probability - label)) + ridge * found
        bent = sparse.diags_array(weight * probability * (1 - probability)) @ inputs
        step = np.linalg.solve((inputs.T @ bent).toarray() + np.diag(ridge), gradient)
        found -= step
        if np.abs(step).max() < _ENOUGH:
            return found
    raise ArithmeticError(f"expected Newton's method to settle in {_STEPS} steps, last moved by {np.abs(step).max()}")
