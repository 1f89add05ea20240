"""LightGCN: vectors of users and products, smoothed over the graph of who had what.

He et al. (2020), "LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation", SIGIR
(arXiv:2002.02126): E_(l+1) = D^-1/2 A D^-1/2 E_l, the answer is the mean of E_0 to E_L, and only E_0 is learned, with
BPR (Rendle et al., 2009) and L2 on the E_0 of each batch. Published on Gowalla: Recall@20 .1830, NDCG@20 .1554.
As an option the loss is a sampled softmax over cosines (Wu et al., 2022, "On the Effectiveness of Sampled Softmax Loss
for Item Recommendation").
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch.nn import functional as F

from data.errors import UsageError
from hierarchy.baselines.fitting import Limits, Trained, Validate, Vectors, completed, require_events, seeded, train
from hierarchy.baselines.pairs import Pairs
from hierarchy.losses.link import sampled_softmax
from hierarchy.purchases import History
from kernels.captured import Captured

DEFAULTS: dict[str, Any] = {
    "dims": 64,
    "layers": 3,
    "lr": 1e-3,
    "l2": 1e-4,
    "batch": 2048,
    "draw": "user",
    "loss": "bpr",
    "negatives": 1024,
    "temperature": 0.1,
}
"""The published setting, and what a setting that leaves something out gets.

`draw`: a pair of a batch is a random event of a random "user", or a random "event". `loss`: "bpr", or "softmax" with
`negatives` shared uniform candidates at `temperature` (without effect under "bpr").
"""

SPACE: dict[str, list[Any]] = {
    "dims": [64, 128, 256],
    "layers": [2, 3, 4],
    "lr": [1e-3, 2e-3, 5e-3, 1e-2],
    "l2": [1e-5, 1e-4, 3e-4, 1e-3],
    "batch": [2048, 4096, 8192, 16384],
    "draw": ["user", "event"],
}
"""What tuning draws from. A batch of 2,048 at 1e-3 takes hundreds of epochs; larger ones at larger rates, tens."""


class LightGcn(torch.nn.Module):
    """E_0 of users, then products (users + products, dims), and its smoothing over `adjacency`."""

    def __init__(self, known: History, dims: int, layers: int, normalised: bool) -> None:
        """With `normalised`, products end as unit vectors, since then the loss looks at cosines alone."""
        super().__init__()
        self.start = torch.nn.Parameter(torch.randn(known.num_users + known.num_products, dims) * 0.1)
        self.num_users, self.layers, self.normalised = known.num_users, layers, normalised

    def propagated(self, adjacency: torch.Tensor) -> torch.Tensor:
        """Mean of E_0 to E_L (users + products, dims)."""
        smoothed: torch.Tensor = _Smoothed.apply(self.start, adjacency, self.layers)  # type: ignore[no-untyped-call]
        return smoothed

    @torch.no_grad()
    def vectors(self, adjacency: torch.Tensor) -> Vectors:
        """Vectors whose dot product is the score."""
        nodes = self.propagated(adjacency)
        products = nodes[self.num_users :]
        return Vectors(nodes[: self.num_users], F.normalize(products, dim=1) if self.normalised else products)


class _Smoothed(torch.autograd.Function):
    """x -> (x + Ax + ... + A^L x) / (L + 1). A is symmetric, so the map is its own adjoint: nothing is kept for the
    way back, and a transposed sparse product (slow, and not repeatable on a GPU) is never needed."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, adjacency: torch.Tensor, layers: int) -> torch.Tensor:
        ctx.adjacency, ctx.layers = adjacency, layers
        total = x.clone()
        for _ in range(layers):
            x = adjacency @ x
            total += x
        return total / (layers + 1)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _Smoothed.forward(ctx, grads[0].contiguous(), ctx.adjacency, ctx.layers), None, None


def adjacency_of(known: History, device: torch.device) -> torch.Tensor:
    """D^-1/2 A D^-1/2 of users, then products, as sparse CSR float32 on `device`; a repeated event counts once.

    Two entries a distinct pair: 12 bytes each.
    """
    pairs = known.matrix()
    pairs.data = np.ones_like(pairs.data)
    degrees = np.concatenate([np.asarray(pairs.sum(axis=axis)).ravel() for axis in (1, 0)])
    scale = sparse.diags_array((1 / np.sqrt(np.maximum(degrees, 1.0))).astype(np.float32))
    whole = (scale @ sparse.block_array([[None, pairs], [pairs.T, None]], format="csr") @ scale).tocsr()
    whole.sort_indices()
    parts = whole.indptr.astype(np.int32), whole.indices.astype(np.int32), whole.data.astype(np.float32)
    rows, columns, values = map(torch.from_numpy, parts)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(rows, columns, values, whole.shape, check_invariants=True).to(device)


def fit(
    known: History,
    setting: Mapping[str, Any],
    seed: int = 0,
    device: str = "cpu",
    limits: Limits | None = None,
    validate: Validate | None = None,
) -> Trained:
    """LightGCN of `known`. `grown` smooths the learned E_0 over a later history's graph.

    A step costs 2 x layers sparse products, O(events x dims), whatever its batch. Raises UsageError for a history
    without events and for an unknown key or value of `setting`.
    """
    require_events(known, "LightGCN")
    chosen, limits, where = completed(setting, DEFAULTS), limits or Limits(), torch.device(device)
    _check(chosen)
    adjacency = adjacency_of(known, where)
    with seeded(seed, where):
        model = LightGcn(known, chosen["dims"], chosen["layers"], chosen["loss"] == "softmax").to(where)
        step = _stepper(model, adjacency, Pairs(known, where, chosen["draw"] == "user"), chosen, limits)
        course = train(model, step, lambda: model.vectors(adjacency), limits, validate)
    return Trained(model.vectors(adjacency), lambda later: model.vectors(adjacency_of(later, where)), course)


def _stepper(model: LightGcn, adjacency: torch.Tensor, pairs: Pairs, setting: Mapping[str, Any], limits: Limits) -> Any:
    on_gpu = adjacency.device.type == "cuda"
    batch = min(setting["batch"], pairs.size)
    record = limits.record and on_gpu
    optimiser = torch.optim.Adam(model.parameters(), lr=setting["lr"], fused=on_gpu, capturable=record)

    def step() -> torch.Tensor:
        optimiser.zero_grad(set_to_none=True)
        loss = _loss(model, adjacency, pairs, batch, setting)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        return loss.detach()

    recorded = Captured(step, adjacency.device) if record else step

    def epoch() -> Iterator[torch.Tensor]:
        for _ in range(math.ceil(pairs.size / batch)):
            yield recorded()

    return epoch


def _loss(
    model: LightGcn, adjacency: torch.Tensor, pairs: Pairs, batch: int, setting: Mapping[str, Any]
) -> torch.Tensor:
    user, liked = pairs.draw(batch)
    nodes = model.propagated(adjacency)
    rows = [user, liked + model.num_users]
    if setting["loss"] == "bpr":
        rows.append(pairs.others(user) + model.num_users)
        main = bpr(*(F.embedding(row, nodes) for row in rows))
    else:
        shared = pairs.uniform(setting["negatives"])
        found = [F.normalize(F.embedding(row, nodes), dim=1) for row in (*rows, shared + model.num_users)]
        expected = torch.full(
            (len(shared),), math.log(len(shared) / (len(nodes) - model.num_users)), device=nodes.device
        )
        main = softmax(found, expected, shared == liked[:, None], setting["temperature"])
    start = torch.stack([F.embedding(row, model.start).square().sum() for row in rows]).sum()
    loss: torch.Tensor = main + setting["l2"] * 0.5 * start / batch
    return loss


def bpr(user: torch.Tensor, liked: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Mean of -log sigmoid(user . liked - user . other); all (B, dims)."""
    return F.softplus((user * (other - liked)).sum(dim=1)).mean()


def softmax(
    found: Sequence[torch.Tensor], log_expected: torch.Tensor, accidental: torch.Tensor, temperature: float
) -> torch.Tensor:
    """Sampled softmax of user (B, dims) with liked (B, dims) among shared candidates (C, dims), all unit vectors."""
    user, liked, shared = found
    positive = (user * liked).sum(dim=1) / temperature
    return sampled_softmax(positive, user @ shared.T / temperature, log_expected, accidental, torch.ones_like(positive))


def _check(setting: Mapping[str, Any]) -> None:
    for key, known in {"draw": ("user", "event"), "loss": ("bpr", "softmax")}.items():
        if setting[key] not in known:
            raise UsageError(f"LightGCN's {key!r} is one of {known}, not {setting[key]!r}: mend the setting")
