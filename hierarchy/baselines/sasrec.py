"""SASRec: a causal transformer over a user's newest products, scoring what comes next.

Kang & McAuley (2018), "Self-Attentive Sequential Recommendation", ICDM (arXiv:1808.09781), in its strong form: instead
of one negative with binary cross entropy, a softmax over 256 uniform negatives a sequence with logQ correction, or
over all products (Klenitskiy & Vasilev, 2023, "Turning Dross Into Gold Loss", RecSys), and as an option cosines at a
temperature. Blocks are pre-norm, and products share one table as input and output.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from data.errors import UsageError
from hierarchy.baselines.fitting import Limits, Trained, Validate, Vectors, completed, require_events, seeded, train
from hierarchy.losses.link import sampled_softmax
from hierarchy.purchases import History
from kernels.captured import Captured

DEFAULTS: dict[str, Any] = {
    "dims": 64,
    "blocks": 2,
    "heads": 2,
    "expand": 1,
    "length": 50,
    "dropout": 0.5,
    "lr": 1e-3,
    "weight_decay": 0.0,
    "batch": 256,
    "negatives": 256,
    "temperature": 0.07,
    "precision": "float32",
}
"""A good start on sparse histories, and what a setting that leaves something out gets.

`length`: newest products that are looked at. `expand`: hidden over model width of the feed-forward part. `negatives`: a
sequence's own; None for the softmax over all products. `temperature`: None for raw dot products, else cosines over it.
`precision`: "float32", or "bfloat16" for the blocks in training, under autocast.
"""

SPACE: dict[str, list[Any]] = {
    "dims": [64, 128, 256],
    "blocks": [1, 2, 3],
    "heads": [1, 2, 4],
    "expand": [1, 4],
    "dropout": [0.2, 0.3, 0.4, 0.5, 0.6],
    "lr": [3e-4, 5e-4, 1e-3, 2e-3],
    "weight_decay": [0.0, 0.01, 0.1],
    "batch": [128, 256, 512],
    "negatives": [256, 1024, None],
    "temperature": [None, 0.05, 0.07, 0.1],
}
"""What tuning draws from."""

_INFERENCE = 1024
"""Users encoded at once for scoring."""


@dataclass(frozen=True)
class Sequences:
    """The newest products of users, oldest first: `products` (n, width), padded behind, and `lengths` (n,) int64."""

    products: torch.Tensor
    lengths: torch.Tensor

    @staticmethod
    def of(known: History, length: int, device: torch.device) -> Sequences:
        """One row a user, empty for those without events; of equal ages the earlier row is the older one.

        Memory: users x min(length, longest history) x 4 bytes.
        """
        order = np.lexsort((-known.age, known.user))
        user = known.user[order]
        counts = np.bincount(user, minlength=known.num_users)
        ends = np.cumsum(counts)
        to_newest = ends[user] - 1 - np.arange(len(user))
        lengths = np.minimum(counts, length)
        kept = to_newest < length
        table = np.zeros((known.num_users, max(int(lengths.max(initial=0)), 1)), np.int32)
        table[user[kept], (lengths[user] - 1 - to_newest)[kept]] = known.product[order][kept]
        return Sequences(torch.from_numpy(table).to(device), torch.from_numpy(lengths).to(device))

    def with_next(self) -> Sequences:
        """Those of at least two products: there is something to predict."""
        enough = torch.nonzero(self.lengths >= 2).ravel()
        return Sequences(self.products[enough], self.lengths[enough])


class SasRec(torch.nn.Module):
    """Table of products, positions and blocks; states of sequences and scores of all products by dot product."""

    def __init__(self, num_products: int, setting: Mapping[str, Any]) -> None:
        super().__init__()
        dims = setting["dims"]
        self.length, self.temperature = setting["length"], setting["temperature"]
        self.autocast = setting["precision"] == "bfloat16"
        self.table = torch.nn.Embedding(num_products, dims)
        self.positions = torch.nn.Embedding(self.length, dims)
        for embedding in (self.table, self.positions):
            torch.nn.init.normal_(embedding.weight, std=0.02)
        self.dropout = torch.nn.Dropout(setting["dropout"])
        self.blocks = torch.nn.ModuleList(
            _Block(dims, setting["heads"], setting["expand"], setting["dropout"]) for _ in range(setting["blocks"])
        )
        self.norm = torch.nn.LayerNorm(dims)

    def forward(self, products: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """States (B, W, D), float32, of sequences (B, W) padded behind; those of the padding mean nothing.

        The newest product has the last position, whatever the length, as it has in a sequence padded in front.
        Padding behind needs no mask: a causal state never sees what follows it.
        """
        steps = torch.arange(products.shape[1], device=products.device)
        places = (self.length - lengths[:, None] + steps).clamp_max(self.length - 1)
        rounded = self.autocast and self.training
        with torch.autocast(products.device.type, torch.bfloat16, enabled=rounded, cache_enabled=False):
            x = self.table(products) * math.sqrt(self.table.embedding_dim) + self.positions(places)
            x = self.dropout(x)
            for block in self.blocks:
                x = block(x)
        states: torch.Tensor = self.norm(x.float())
        return states if self.temperature is None else F.normalize(states, dim=-1) / self.temperature

    def products(self) -> torch.Tensor:
        """Output vectors of all products (P, D)."""
        return self.table.weight if self.temperature is None else F.normalize(self.table.weight, dim=1)

    @torch.no_grad()
    def vectors(self, sequences: Sequences) -> Vectors:
        """States after the newest product of each user, zero for a user without any, and the table of products."""
        self.eval()
        states = [
            self(products, lengths)[torch.arange(len(lengths), device=lengths.device), (lengths - 1).clamp_min(0)]
            for products, lengths in zip(
                torch.split(sequences.products, _INFERENCE), torch.split(sequences.lengths, _INFERENCE), strict=True
            )
        ]
        users = torch.cat(states) * (sequences.lengths > 0)[:, None]
        return Vectors(users, self.products().detach().clone())


class _Block(torch.nn.Module):
    """Causal self-attention and a feed-forward part, each normalised before and added after."""

    def __init__(self, dims: int, heads: int, expand: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.rate = heads, dropout
        self.first, self.second = torch.nn.LayerNorm(dims), torch.nn.LayerNorm(dims)
        self.joint, self.out = torch.nn.Linear(dims, 3 * dims), torch.nn.Linear(dims, dims)
        self.forth, self.back = torch.nn.Linear(dims, expand * dims), torch.nn.Linear(expand * dims, dims)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.joint(self.first(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        rate = self.rate if self.training else 0.0
        query, key, value = parts
        found = F.scaled_dot_product_attention(query, key, value, dropout_p=rate, is_causal=True)
        x = x + self.dropout(self.out(found.transpose(1, 2).flatten(2)))
        wide = self.dropout(F.relu(self.forth(self.second(x))))
        out: torch.Tensor = x + self.dropout(self.back(wide))
        return out


def fit(
    known: History,
    setting: Mapping[str, Any],
    seed: int = 0,
    device: str = "cpu",
    limits: Limits | None = None,
    validate: Validate | None = None,
) -> Trained:
    """SASRec of `known`. `grown` encodes a later history, so that newer products count without training.

    All sequences lie on the device. Memory of a step: batch x length x (dims + negatives) floats, or with the softmax
    over all products the positions of a batch x products. Raises UsageError when no user has two events, and for an
    unknown key or value of `setting`.
    """
    require_events(known, "SASRec")
    chosen, limits, where = completed(setting, DEFAULTS), limits or Limits(), torch.device(device)
    _check(chosen)
    told = Sequences.of(known, chosen["length"] + 1, where).with_next()
    if not len(told.lengths):
        raise UsageError("SASRec learns what comes next: expected a user with two events, found none; give more events")
    sequences = Sequences.of(known, chosen["length"], where)
    with seeded(seed, where):
        model = SasRec(known.num_products, chosen).to(where)
        epoch = _stepper(model, told, chosen, limits)
        course = train(model, epoch, lambda: model.vectors(sequences), limits, validate)
    return Trained(
        model.vectors(sequences), lambda later: model.vectors(Sequences.of(later, chosen["length"], where)), course
    )


def _stepper(model: SasRec, told: Sequences, setting: Mapping[str, Any], limits: Limits) -> Any:
    device = told.lengths.device
    on_gpu = device.type == "cuda"
    record = limits.record and on_gpu
    batch = min(setting["batch"], len(told.lengths))
    room = capacity(told.lengths - 1, batch)
    optimiser = torch.optim.AdamW(
        model.parameters(),
        lr=setting["lr"],
        betas=(0.9, 0.98),
        weight_decay=setting["weight_decay"],
        fused=on_gpu,
        capturable=record,
    )

    def step(rows: torch.Tensor) -> torch.Tensor:
        optimiser.zero_grad(set_to_none=True)
        loss = next_loss(model, told.products[rows].long(), told.lengths[rows], setting["negatives"], room)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        return loss.detach()

    recorded = Captured(step, device) if record else step

    def epoch() -> Iterator[torch.Tensor]:
        """Full batches of a new order; a rest smaller than a batch is left out, another one each time."""
        order = torch.randperm(len(told.lengths), device=device)
        for rows in torch.split(order[: len(order) // batch * batch], batch):
            yield recorded(rows)

    return epoch


def next_loss(
    model: SasRec, products: torch.Tensor, lengths: torch.Tensor, negatives: int | None, room: int
) -> torch.Tensor:
    """Mean over positions of -log softmax of the product that comes next, in sequences (B, W + 1) padded behind.

    `negatives` uniform candidates for each sequence, or None for all products. At most `room` positions are looked at.
    """
    states = model(products[:, :-1], lengths - 1)
    steps = torch.arange(states.shape[1], device=states.device)
    place, weight = chosen_places((steps < lengths[:, None] - 1).flatten(), room)
    target = products[:, 1:].flatten()[place]
    table = model.products()
    if negatives is None:
        losses = F.cross_entropy(states.flatten(0, 1)[place] @ table.T, target, reduction="none")
        return (losses * weight).sum() / weight.sum()
    drawn = torch.randint(len(table), (len(states), negatives), device=states.device)
    logits = torch.bmm(states, F.embedding(drawn, table).transpose(1, 2)).flatten(0, 1)[place]
    positive = (states.flatten(0, 1)[place] * F.embedding(target, table)).sum(dim=1)
    accidental = drawn[place // states.shape[1]] == target[:, None]
    expected = torch.full((negatives,), math.log(negatives / len(table)), device=states.device)
    return sampled_softmax(positive, logits, expected, accidental, weight)


def chosen_places(mask: torch.Tensor, room: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The first `room` places where `mask` (n,) holds, and 1.0 for each; places that are lacking weigh 0.0.

    Of a fixed size, and without reading anything back to the host.
    """
    count = mask.cumsum(0)
    nth = torch.arange(1, room + 1, device=mask.device)
    return torch.searchsorted(count, nth).clamp_max(len(mask) - 1), (nth <= count[-1]).float()


def capacity(positions: torch.Tensor, batch: int) -> int:
    """Positions to keep room for in a batch of random sequences: six standard deviations above the mean.

    Never more than the longest sequences together hold; a batch that has more loses the rest of its last sequences.
    """
    mean, spread = positions.double().mean().item(), positions.double().std(correction=0).item()
    return min(math.ceil(batch * mean + 6 * math.sqrt(batch) * spread), batch * int(positions.max()))


def _check(setting: Mapping[str, Any]) -> None:
    if setting["dims"] % setting["heads"]:
        raise UsageError(
            f"SASRec's dims must be a multiple of its heads: {setting['dims']} is not one of {setting['heads']}"
        )
    if setting["precision"] not in ("float32", "bfloat16"):
        raise UsageError(f"SASRec's 'precision' is 'float32' or 'bfloat16', not {setting['precision']!r}")
