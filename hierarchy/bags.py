"""Membership of entities in primitives: a softmax of cosines, cut to its strongest terms, at a chosen sharpness."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

Vectors = NDArray[np.float32]

BLOCK = 512
"""Rows multiplied at once. A matrix product's last bits depend on its shape, so the shape is always the same."""

_STEPS = 24
_SHARPEST, _SOFTEST = 1e-3, 10.0


class Bags(NamedTuple):
    """The `top` strongest primitives of n entities at one level, strongest first.

    primitive int32 (n, top), weight float32 (n, top) whose rows sum to 1, residual float32 (n,): the dropped mass.
    """

    primitive: NDArray[np.int32]
    weight: Vectors
    residual: Vectors


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Within it a matrix product's bits do not depend on how many threads the machine has."""
    with _libraries().limit(limits=1, user_api="blas"):
        yield


def cosines(vectors: Vectors, prototypes: Vectors) -> Vectors:
    """Inner products (n, k) of unit rows (n, d) and (k, d); a row's bits depend on no other row and no thread count."""
    found = np.empty((len(vectors), len(prototypes)), np.float32)
    block = np.zeros((BLOCK, prototypes.shape[1]), np.float32)
    with one_blas_thread():
        for start in range(0, len(vectors), BLOCK):
            part = vectors[start : start + BLOCK]
            block[: len(part)] = part
            found[start : start + BLOCK] = (block @ prototypes.T)[: len(part)]
    return found


def softmax(logits: Vectors) -> Vectors:
    """Probabilities of each row of `logits` (n, k)."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def cut(probabilities: Vectors, top: int) -> Bags:
    """Rows (n, k) cut to their `top` largest (all when k is smaller) and renormalised; the lower id wins a tie.

    O(n k top): for the few that a bag keeps, faster than a partition of the row.
    """
    count, top = len(probabilities), min(top, probabilities.shape[1])
    primitive, weight = np.empty((count, top), np.int32), np.empty((count, top), np.float32)
    rows, left = np.arange(count), probabilities.copy()
    for place in range(top):
        strongest = left.argmax(axis=1)
        primitive[:, place], weight[:, place] = strongest, left[rows, strongest]
        left[rows, strongest] = -1.0
    kept = weight.sum(axis=1, keepdims=True)
    return Bags(primitive, weight / kept, np.maximum(1.0 - kept[:, 0], 0.0).astype(np.float32))


def hold(probabilities: Vectors, held: NDArray[np.int64], margin: float) -> None:
    """Give the largest of each row (n, k) to the primitive `held` (n,) where it leads that one by less than `margin`.

    The two change places, in `probabilities` itself, so that no row's sum or spread changes; -1 holds nothing.
    """
    rows = np.flatnonzero(held >= 0)
    strongest, before = probabilities[rows].argmax(axis=1), held[rows]
    most, own = probabilities[rows, strongest], probabilities[rows, before]
    close = (most - own < margin) & (strongest != before)
    probabilities[rows[close], before[close]] = most[close]
    probabilities[rows[close], strongest[close]] = own[close]


def entropy(probabilities: Vectors) -> NDArray[np.float64]:
    """Entropy of each row [nats], float64 (n,)."""
    wide = probabilities.astype(np.float64)
    return np.asarray(-(wide * np.log(np.maximum(wide, 1e-30))).sum(axis=1))


def fit_tau(cosine: Vectors, groups: NDArray[np.int64], perplexity: float) -> float:
    """The temperature at which softmax(cosine / tau) has `perplexity`, exp of the mean entropy of the rows (n, k).

    The mean is over `groups` (n,) first, so that few users count as much as many products. As t-SNE sets its bandwidth
    (van der Maaten & Hinton, 2008). Three digits, so that the last bits of a product decide nothing.
    """
    low, high = np.log(_SHARPEST), np.log(_SOFTEST)
    sizes = np.bincount(groups)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        found = np.bincount(groups, entropy(softmax(cosine / np.float32(np.exp(middle)))))
        softer = (found[sizes > 0] / sizes[sizes > 0]).mean() < np.log(perplexity)
        low, high = (middle, high) if softer else (low, middle)
    return float(f"{np.exp(low):.3g}")
