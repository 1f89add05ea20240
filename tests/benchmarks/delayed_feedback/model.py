"""Logistic regression on one-hot codes and numbers, fitted by Fisher scoring to delayed labels."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from ranking.delayed import Delayed
from ranking.evaluate import Floats, sigmoid
from tests.benchmarks.delayed_feedback.log import Log

_RIDGE, _STEPS, _ENOUGH = 2.0, 200, 1e-8


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
    """(columns,) coefficients that minimise the `delayed_loss` of `rows`, summed, plus a ridge; `start` saves steps."""
    kept = np.flatnonzero(rows.weight)
    inputs, ridge = inputs[kept], np.full(inputs.shape[1], _RIDGE)
    label, weight, share = (c[kept].astype(np.float64) for c in (rows.label, rows.weight, rows.share))
    later = np.log(np.maximum(1.0 - share, 1e-35))
    ridge[0] = 1e-6  # the intercept is free
    found = np.zeros(inputs.shape[1]) if start is None else start.copy()
    if start is None:
        rate = np.clip((weight * label).sum() / (weight * share).sum(), 1e-6, 1 - 1e-6)
        found[0] = np.log(rate / (1 - rate))

    def height(found: Floats) -> float:
        logits = inputs @ found
        losses = np.logaddexp(0, logits) - label * logits - (1 - label) * np.logaddexp(0, logits + later)
        return float(weight @ losses + ridge @ found**2 / 2)

    now = height(found)
    for _ in range(_STEPS):
        logits = inputs @ found
        p = sigmoid(logits)
        slope = inputs.T @ (weight * (p - label - (1 - label) * sigmoid(logits + later))) + ridge * found
        # Expected curvature: that of the loss itself may be negative where little is known.
        curvature = weight * share * p * (1 - p) ** 2 / np.maximum(1 - p * share, 1e-12)
        bent = sparse.diags_array(curvature) @ inputs
        step = np.linalg.solve((inputs.T @ bent).toarray() + np.diag(ridge), slope)
        while (after := height(found - step)) > now + 1e-12 * abs(now):
            step /= 2
        found, gain, now = found - step, now - after, after
        if gain < _ENOUGH * abs(now):
            return found
    raise ArithmeticError(f"expected the loss to settle in {_STEPS} steps, last gained {gain}")
