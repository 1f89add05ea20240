"""One content vector from several modalities: each whitened on its own, then averaged over those present.

Soft PCA whitening takes out the common direction and shrinks the loud ones (Su et al., 2021, arXiv:2103.15316;
`power` between PCA alone and full whitening). Every further modality is turned onto the first by the orthogonal map
that fits best on entities that have both (Schoenemann, 1966), so that their average means something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from torch import Tensor, nn

from encoders.base import MODALITIES, Vectors, unit

_BLOCK = 512  # rows whitened at once


@dataclass(frozen=True)
class Whitening:
    """x -> unit((x - mean) @ components): mean float32 (d,), components float32 (d, D)."""

    mean: NDArray[np.float32]
    components: NDArray[np.float32]

    def apply(self, vectors: Vectors) -> Vectors:
        """Whitened unit-norm rows, (n, d) -> (n, D). Done in blocks of one shape: a row's bits depend on no other."""
        found = np.empty((len(vectors), self.components.shape[1]), np.float32)
        block = np.zeros((_BLOCK, len(self.mean)), np.float32)
        for start in range(0, len(vectors), _BLOCK):
            part = vectors[start : start + _BLOCK]
            block[: len(part)] = part - self.mean
            found[start : start + _BLOCK] = (block @ self.components)[: len(part)]
        return unit(found)


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

    @property
    def modalities(self) -> tuple[str, ...]:
        """The modalities that parts hold, in the order of MODALITIES."""
        return tuple(name for name in MODALITIES if name in self.whitenings)

    def fuse(self, parts: Vectors, present: NDArray[np.bool_]) -> Vectors:
        """Unit-norm content (n, D) of whitened `parts` (n, P, D), of which `present` (n, P) say which there are; zero
        without any. P are `modalities`."""
        weights = present * np.array([self.weights[name] for name in self.modalities])
        return unit(np.einsum("np,npd->nd", weights, parts))

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


class GatedFusion(nn.Module):
    """Content from whitened parts with a learned weight for each modality of each entity.

    The weight is the untrained one times 2 sigmoid(MLP(parts, present)), whose last layer starts at zero: at the start
    this is `Fusion.fuse`, and with modalities missing the rest still counts. `weights` (M,) are those of the mean.
    """

    weights: Tensor

    def __init__(self, dim: int, weights: Sequence[float], hidden: int = 64) -> None:
        super().__init__()
        modalities = len(weights)
        self.register_buffer("weights", torch.tensor(weights, dtype=torch.float32))
        self.hidden = nn.Linear(modalities * (dim + 1), hidden)
        self.gate = nn.Linear(hidden, modalities)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def forward(self, parts: Tensor, present: Tensor) -> Tensor:
        """Unit-norm content (..., D) of parts (..., M, D), of which `present` bool (..., M) are there; zero without
        any."""
        there = present.to(parts.dtype)
        parts = parts * there.unsqueeze(-1)
        seen = torch.cat([parts.flatten(-2), there], dim=-1)
        gate = 2 * torch.sigmoid(self.gate(nn.functional.gelu(self.hidden(seen))))
        return nn.functional.normalize(((gate * self.weights * there).unsqueeze(-1) * parts).sum(-2), dim=-1)


class ContentPool(nn.Module):
    """One vector of many: attention over the products of an advertiser (Lee et al., 2019, arXiv:1810.00825, with one
    seed), which starts as their mean."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.score = nn.Linear(dim, 1, bias=False)
        nn.init.zeros_(self.score.weight)

    def forward(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Unit-norm rows (N, D) of jagged `values` (T, D), of which row i has offsets[i] .. offsets[i + 1] - 1; zero
        for an empty row. `offsets` int64 (N + 1,)."""
        rows = torch.repeat_interleave(torch.arange(len(offsets) - 1, device=values.device), offsets.diff())
        score = self.score(values).squeeze(-1)
        top = torch.full((len(offsets) - 1,), -torch.inf, dtype=score.dtype, device=score.device)
        top = top.scatter_reduce(0, rows, score.detach(), "amax")
        weight = torch.exp(score - top[rows])
        pooled = torch.zeros(len(offsets) - 1, values.shape[1], dtype=values.dtype, device=values.device)
        return nn.functional.normalize(pooled.index_add(0, rows, weight.unsqueeze(-1) * values), dim=-1)
