"""One content vector from several modalities: each whitened on its own, then averaged over those present.

Soft PCA whitening takes out the common direction and shrinks the loud ones (Su et al., 2021, arXiv:2103.15316;
`power` between PCA alone and full whitening). Every further modality is turned onto the first by the orthogonal map
that fits best on entities that have both (Schoenemann, 1966), so that their average means something.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from encoders.base import Vectors, unit


@dataclass(frozen=True)
class Whitening:
    """x -> unit((x - mean) @ components): mean float32 (d,), components float32 (d, D)."""

    mean: NDArray[np.float32]
    components: NDArray[np.float32]

    def apply(self, vectors: Vectors) -> Vectors:
        """Whitened unit-norm rows, (n, d) -> (n, D)."""
        return unit((vectors - self.mean) @ self.components)


def fit_whitening(vectors: Vectors, dim: int, power: float, regularisation: float) -> Whitening:
    """Whitening of (n, d) vectors to `dim` components, each scaled by (variance + r * mean variance) ** (-power / 2).

    power 0 is plain PCA, 1 full whitening; r = `regularisation` keeps faint directions faint. Without enough variance
    the last components are zero. Signs are fixed, so that equal data gives equal bits.
    """
    wide = vectors.astype(np.float64)
    mean = wide.mean(axis=0) if len(wide) else np.zeros(wide.shape[1])
    variance, axes = np.linalg.eigh((wide - mean).T @ (wide - mean) / max(len(wide), 1))
    variance, axes = variance[::-1][:dim], axes[:, ::-1][:, :dim]
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    kept = variance > 1e-9 * max(variance.max(initial=0.0), 1e-30)
    scale = np.where(kept, np.maximum(variance, 1e-30) + regularisation * variance[kept].sum() / max(kept.sum(), 1), 1)
    components = np.zeros((wide.shape[1], dim))
    components[:, : len(variance)] = axes * np.where(kept, scale ** (-power / 2), 0)
    return Whitening(mean.astype(np.float32), components.astype(np.float32))


def turned_onto(whitening: Whitening, own: Vectors, reference: Vectors) -> Whitening:
    """The whitening, then the rotation that best carries its rows `own` (n, D) onto the rows `reference` (n, D)."""
    left, _, right = np.linalg.svd(own.astype(np.float64).T @ reference.astype(np.float64))
    return Whitening(whitening.mean, (whitening.components @ (left @ right)).astype(np.float32))


@dataclass(frozen=True)
class Fusion:
    """Whitenings by modality, and the weight each carries in the mean."""

    whitenings: Mapping[str, Whitening]
    weights: Mapping[str, float]

    def fuse(self, parts: Mapping[str, tuple[Vectors, NDArray[np.bool_]]]) -> Vectors:
        """Unit-norm content (n, D) of whitened rows (n, D) by modality with their presence (n,); zero without any."""
        total = sum(self.weights[name] * present[:, None] * rows for name, (rows, present) in parts.items())
        return unit(np.asarray(total))

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """The whitenings as named arrays, for safetensors."""
        pairs = self.whitenings.items()
        means = {f"{name}.mean": whitening.mean for name, whitening in pairs}
        return means | {f"{name}.components": whitening.components for name, whitening in pairs}

    @classmethod
    def load(cls, path: Path, weights: Mapping[str, float]) -> Fusion:
        """Read whitenings written from `tensors`."""
        found = load_file(path)
        names = sorted({name.rsplit(".", 1)[0] for name in found})
        return cls({n: Whitening(found[f"{n}.mean"], found[f"{n}.components"]) for n in names}, weights)
