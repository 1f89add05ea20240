"""A hierarchy of products by any method, and the space in which its own assignment is what tokens say.

The stage `tokens` gives an entity the primitives of largest cosine. That is k-means' own rule, but not that of residual
codes or communities. For those, products are laid into a space with one axis a primitive: a product is 1 on its own
primitive of each level, whatever has products (a user, an advertiser) is the mean of them, and a primitive is its own
axis with a little of where its products are at other levels. Nearest by cosine is then the method's own assignment, and
the nearest of the level above is the parent that most products share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from data.errors import UsageError
from hierarchy.bags import Vectors
from hierarchy.kmeans import group_sums, unit

OTHER_LEVELS = 0.1
"""Weight of a primitive's other levels: below 1/4, so that they never outweigh a product's own axis."""


class Division(Protocol):
    """A fitted hierarchy: `vectors`, unit (k, d) by level, coarse to fine, are what each primitive stands for in the
    space of the products it was fitted on; `nearest` says whether a product's primitive is that of largest cosine."""

    vectors: list[Vectors]
    nearest: bool

    def assign(self, vectors: Vectors) -> list[NDArray[np.int64]]:
        """By level the primitive of each product (n,), from its vector (n, d)."""
        ...


class LinearMap(NamedTuple):
    """Vectors (n, d) to unit vectors (n, m): the directions of a matrix that vary most, each scaled by its singular
    value to `power`, 0 leaving it as it is, -1 whitening."""

    matrix: Vectors

    def __call__(self, vectors: Vectors) -> Vectors:
        """Unit rows (n, m)."""
        return unit(vectors @ self.matrix)


def fit_map(vectors: Vectors, dims: int, power: float) -> LinearMap:
    """The map of the first `dims` (at most d) principal directions of `vectors` (n, d), not centred: a mean over
    entities must stay a mean over their images. O(n d^2)."""
    second = vectors.T.astype(np.float64) @ vectors
    values, directions = np.linalg.eigh(second / len(vectors))
    kept = np.argsort(-values, kind="stable")[:dims]
    # A direction's sign is arbitrary: its largest part is made positive, so that equal data give equal bits.
    largest = np.abs(directions[:, kept]).argmax(axis=0)
    signed = directions[:, kept] * np.sign(directions[largest, kept])
    scale = np.sqrt(np.maximum(values[kept], 1e-12 * values.max())) ** power
    return LinearMap(np.asarray(signed * scale / scale.max(), np.float32))


def branching(sizes: Sequence[int]) -> list[int]:
    """Children of each primitive by level for prefix codes that make `sizes` primitives: 16, 64, 256 is 16, 4, 4.

    Raises UsageError unless each size is a multiple of the one before.
    """
    above = [1, *sizes[:-1]]
    if any(k % parent for k, parent in zip(sizes, above, strict=True)):
        raise UsageError(f"expected level sizes that are multiples of the one before for prefix codes, got {[*sizes]}")
    return [k // parent for k, parent in zip(sizes, above, strict=True)]


def prefixes(codes: Sequence[NDArray[np.int64]], branches: Sequence[int]) -> list[NDArray[np.int64]]:
    """By level the number of the prefix that ends there, from the `codes` (n,) of each level."""
    found: list[NDArray[np.int64]] = []
    for code, branch in zip(codes, branches, strict=True):
        found.append(code if not found else found[-1] * branch + code)
    return found


def membership_space(assigned: Sequence[NDArray[np.int64]], sizes: Sequence[int]) -> tuple[Vectors, list[Vectors]]:
    """Products (n, K) with K the sum of `sizes`, and the primitives (k, K) of each level, all unit rows.

    A product whose primitive is -1 at a level has nothing there. Memory: (n + K) x K x 4 bytes.
    """
    width = sum(sizes)
    offsets = np.cumsum([0, *sizes[:-1]])
    members = np.zeros((len(assigned[0]), width), np.float32)
    for own, offset in zip(assigned, offsets, strict=True):
        there = np.flatnonzero(own >= 0)
        members[there, own[there] + offset] = 1.0
    primitives = []
    for own, offset, k in zip(assigned, offsets, sizes, strict=True):
        held = own >= 0
        mean = group_sums(members[held], own[held], k)
        mean *= OTHER_LEVELS / np.maximum(np.bincount(own[held], minlength=k), 1)[:, None]
        mean[np.arange(k), np.arange(k) + offset] = 1.0
        primitives.append(unit(mean))
    return unit(members), primitives
