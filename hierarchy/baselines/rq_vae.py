"""RQ-VAE: an autoencoder whose middle is a sum of codes, one of each level; a primitive is a prefix of codes.

Lee et al. (2022, arXiv:2203.01941) with codebooks as exponential averages of their members and a commitment term (van
den Oord et al., 2017, arXiv:1711.00937), as TIGER makes semantic ids (Rajput et al., 2023, arXiv:2305.05065). Codes of
few products are moved onto a product of the batch (Dhariwal et al., 2020, arXiv:2005.00341).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import mse_loss

from data.errors import BadDataError
from hierarchy.bags import Vectors
from hierarchy.baselines.division import branching, prefixes
from hierarchy.kmeans import unit

_DECAY = 0.95
_DEAD = 0.1  # part of an equal share of a batch below which a code is dead


class Settings(NamedTuple):
    """Width of the hidden layer and of the codes, weight of the commitment, learning rate, steps, rows of a batch."""

    hidden: int = 128
    code: int = 32
    commitment: float = 0.25
    lr: float = 2e-3
    steps: int = 400
    batch: int = 512


class RqVae:
    """Autoencoder and codebooks; primitive p of a level is what the decoder makes of the sum of its prefix' codes."""

    nearest = False

    def __init__(self, vectors: Vectors, sizes: Sequence[int], seed: int, settings: Settings | None = None) -> None:
        """Fit to `vectors` (n, d), O(steps x batch). Equal seeds give equal bits on a CPU; the threads and the random
        state of torch are left as they were.

        Raises UsageError where sizes are no multiples of each other, BadDataError for fewer vectors than codes.
        """
        self.branches = branching(sizes)
        if len(vectors) < max(self.branches):
            raise BadDataError(f"expected at least {max(self.branches)} vectors for as many codes, got {len(vectors)}")
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                self.model = _Model(vectors.shape[1], self.branches, settings or Settings())
                _fit(self.model, torch.from_numpy(vectors), settings or Settings())
                self.vectors = self._decoded()
        finally:
            torch.set_num_threads(threads)

    @torch.no_grad()
    def codes(self, vectors: Vectors) -> list[NDArray[np.int64]]:
        """By level the code of each product (n,)."""
        _, codes, _ = self.model.quantise(self.model.encoder(torch.from_numpy(vectors)))
        return [code.numpy() for code in codes]

    def assign(self, vectors: Vectors) -> list[NDArray[np.int64]]:
        """By level the prefix of each product (n,)."""
        return prefixes(self.codes(vectors), self.branches)

    @torch.no_grad()
    def _decoded(self) -> list[Vectors]:
        found, sums = [], torch.zeros(1, self.model.books[0].shape[1])
        for book in self.model.books:
            sums = (sums[:, None] + book[None]).flatten(0, 1)
            found.append(unit(self.model.decoder(sums).numpy()))
        return found


class _Model(nn.Module):
    def __init__(self, dim: int, branches: Sequence[int], settings: Settings) -> None:
        super().__init__()
        hidden, code = settings.hidden, settings.code
        self.encoder = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, code))
        self.decoder = nn.Sequential(nn.Linear(code, hidden), nn.ReLU(), nn.Linear(hidden, dim))
        self.books = [torch.zeros(branch, code) for branch in branches]
        self.sums = [torch.zeros(branch, code) for branch in branches]
        self.mass = [torch.zeros(branch) for branch in branches]

    def quantise(self, latent: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        """Sum of codes (B, c), by level the code (B,) and the residual it was chosen for (B, c)."""
        residual, codes, residuals = latent, [], []
        for book in self.books:
            residuals.append(residual)
            codes.append(torch.cdist(residual, book).argmin(dim=1))
            residual = residual - book[codes[-1]]
        return latent - residual, codes, residuals


def _fit(model: _Model, vectors: torch.Tensor, settings: Settings) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.lr)
    for step in range(settings.steps):
        batch = vectors[torch.randperm(len(vectors))[: settings.batch]]
        latent = model.encoder(batch)
        if step == 0:
            _start(model, latent.detach())
        summed, codes, residuals = model.quantise(latent)
        straight = latent + (summed - latent).detach()
        loss = mse_loss(model.decoder(straight), batch)
        for level, (code, residual) in enumerate(zip(codes, residuals, strict=True)):
            loss = loss + settings.commitment * mse_loss(residual, model.books[level][code])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        _move(model, codes, [residual.detach() for residual in residuals], restart=step < 0.8 * settings.steps)


@torch.no_grad()
def _start(model: _Model, latent: torch.Tensor) -> None:
    """Codes start on residuals of the first batch, so that none is far from everything."""
    residual = latent
    for level, book in enumerate(model.books):
        chosen = torch.randperm(len(residual))[: len(book)]
        model.books[level] = residual[chosen].clone()
        model.mass[level] = torch.full((len(book),), len(residual) / len(book))
        model.sums[level] = model.books[level] * model.mass[level][:, None]
        residual = residual - model.books[level][torch.cdist(residual, model.books[level]).argmin(dim=1)]


@torch.no_grad()
def _move(model: _Model, codes: list[torch.Tensor], residuals: list[torch.Tensor], restart: bool) -> None:
    """Each code moves towards the mean of its members; with `restart` a dead one onto a residual of this batch."""
    for level, (code, residual) in enumerate(zip(codes, residuals, strict=True)):
        k = len(model.books[level])
        mass = torch.bincount(code, minlength=k).float()
        sums = torch.zeros_like(model.sums[level]).index_add_(0, code, residual)
        model.mass[level].mul_(_DECAY).add_(mass, alpha=1 - _DECAY)
        model.sums[level].mul_(_DECAY).add_(sums, alpha=1 - _DECAY)
        dead = torch.nonzero(model.mass[level] < _DEAD * len(code) / k).flatten()
        if restart and len(dead):
            chosen = torch.randint(len(residual), (len(dead),))
            model.mass[level][dead] = len(code) / k
            model.sums[level][dead] = residual[chosen] * (len(code) / k)
        model.books[level] = model.sums[level] / model.mass[level].clamp(min=1e-6)[:, None]
