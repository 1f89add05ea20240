"""Spectral vectors of products, training-free: singular vectors of the normalised matrix of users and products.

R~ = Du^-a R Di^-b = U S V', D the degrees. A product has two roles: as `source`, a thing that a user had, it is V
Di^-pre; as `target`, a thing that may be next, V S^q Di^post. A user is the sum of the sources they had, so that no
user needs a vector of their own, and the score is one dot product. This is the low-pass half of GF-CF (Shen et al.,
2021, "How powerful is graph convolution for recommendation?") with its exponents set free; U S^p V' is the same model,
for U = R~ V / S. Popularity (Di^post) is kept apart from the directions: some data need it, some must not have it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from data.errors import BadDataError
from hierarchy.purchases import History
from hierarchy.subspace import truncated_svd


@dataclass(frozen=True)
class SpectralSettings:
    """Exponents and sizes; the defaults are those found for sequences of purchases (Gowalla: .4, .4, .3, .3, q .5)."""

    dim: int = 256
    """Dimensions, at most."""
    user_power: float = 0.25
    """a: how much of a user's activity is divided out."""
    item_power: float = 0.35
    """b: how much of a product's popularity is divided out before the decomposition."""
    source_power: float = 0.25
    """pre: how much of it is divided out of a product in a user's history."""
    target_power: float = 0.0
    """post: how much of it is given back to what is recommended."""
    spectrum_power: float = 0.0
    """q: 0 weighs all dimensions alike, 1 by their singular value."""
    repeats: float = 0.0
    """Exponent on how often a user had a product: 0 is once or more, 1 is its count."""
    iterations: int = 4
    """Of the subspace iteration."""


@dataclass(frozen=True)
class SpectralVectors:
    """Float32: `source` and `direction` (products, d), `log_scale` (products,), `singular_values` (d,), falling.

    A product that nobody had is zero in both roles. d may be less than the dimensions asked for on small data.
    """

    source: NDArray[np.float32]
    direction: NDArray[np.float32]
    """V S^q: the target role without popularity."""
    log_scale: NDArray[np.float32]
    """post * ln(degree): the popularity of the target role; 0 where nothing is known."""
    singular_values: NDArray[np.float32]

    @property
    def target(self) -> NDArray[np.float32]:
        """The target role with its popularity, V S^q Di^post (products, d)."""
        return self.direction * np.exp(self.log_scale)[:, None]

    def users(self, profile: sparse.csr_array) -> NDArray[np.float32]:
        """Users (users, d) as sums of the sources of what they had; `profile` (users, products), see History."""
        return np.asarray(profile @ self.source, np.float32)


def spectral_vectors(
    history: History, settings: SpectralSettings, seed: int = 0, device: torch.device | str = "cpu"
) -> SpectralVectors:
    """Fit vectors to a history. Time and memory as in `truncated_svd`: seconds for a million events at 256 dims.

    Raises BadDataError for a history without events.
    """
    if not len(history.user):
        raise BadDataError("expected events to take spectral vectors from, got none: choose a later date")
    matrix = normalised(history, settings.user_power, settings.item_power, settings.repeats)
    degree = degrees(history, settings.repeats)[1]
    factors = truncated_svd(matrix, settings.dim, seed, settings.iterations, device)
    scale = np.maximum(factors.values, 1e-12) ** np.float32(settings.spectrum_power)
    return SpectralVectors(
        source=factors.right * (degree**-settings.source_power)[:, None].astype(np.float32),
        direction=factors.right * scale,
        log_scale=(settings.target_power * np.log(degree)).astype(np.float32),
        singular_values=factors.values,
    )


def degrees(history: History, repeats: float = 0.0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Degree of each user (users,) and product (products,), 1 where there is none; see `repeats` of the settings."""
    matrix = _taken(history, repeats)
    users, products = (np.asarray(matrix.sum(axis=axis), np.float64).ravel() for axis in (1, 0))
    return np.where(users > 0, users, 1.0), np.where(products > 0, products, 1.0)


def normalised(history: History, user_power: float, item_power: float, repeats: float = 0.0) -> sparse.csr_array:
    """R~ = Du^-user_power R Di^-item_power, float32 (users, products)."""
    matrix = _taken(history, repeats)
    users, products = degrees(history, repeats)
    rows = np.repeat(np.arange(len(users)), np.diff(matrix.indptr))
    scale = users[rows] ** -user_power * products[matrix.indices] ** -item_power
    matrix.data = (matrix.data * scale).astype(np.float32)
    return matrix


def _taken(history: History, repeats: float) -> sparse.csr_array:
    matrix = history.matrix()
    matrix.data **= np.float32(repeats)
    return matrix
