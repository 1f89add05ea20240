"""Link logits of a training step's users and candidates, made a few rows at a time for the losses that need them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hierarchy.candidates import Candidates
from hierarchy.losses.by_rows import RowLoss, by_rows
from hierarchy.losses.link import Barred
from hierarchy.model import LinkHead, best_of, repeated
from hierarchy.repeats import history_places, history_share

VOID = 1e4
"""Stands for an infinite log-expectation: exp(-VOID) is 0 in fp32, and differences of such logits stay numbers."""


@dataclass(frozen=True)
class LinkScores:
    """What the link head says of users (B, Q, d) and vectors (C, d) of `candidates`.

    history: products int64 (B, T) that users had and which count (B, T); None where repeats do not.
    """

    head: LinkHead
    users: torch.Tensor
    vectors: torch.Tensor
    candidates: Candidates
    history: tuple[torch.Tensor, torch.Tensor] | None = None

    @property
    def log_expected(self) -> torch.Tensor:
        """Log-expectations (C,) or (B, C) of the candidates, finite."""
        return self.candidates.log_expected.clamp(max=VOID)

    def barred(self, known: torch.Tensor | tuple[torch.Tensor, torch.Tensor] | None = None) -> Barred:
        """Candidates that are no negatives: a row's positive and what it is `known` to have."""
        return Barred(self.candidates.nodes, self.candidates.targets, self.candidates.distinct, known)

    def positive(self) -> torch.Tensor:
        """Logits (B,) of each row's own target. A row without one has an arbitrary candidate's, and no weight."""
        targets = self.candidates.targets
        cosine = (self.users * self.vectors[targets][:, None, :]).sum(dim=2).amax(dim=1)
        logits = cosine * self.head.log_scale.exp() + self.head.popularity * self.candidates.log_degree[targets]
        if self.history is None:
            return logits
        history, mask = self.history
        own = (history == self.candidates.nodes[targets][:, None]) & mask
        return logits + repeated(self.head.repeat, own.sum(dim=1) / mask.sum(dim=1).clamp_min(1))

    def losses(self, losses: Sequence[RowLoss]) -> tuple[torch.Tensor, ...]:
        """`losses` (B,) each, of logits with log_expected subtracted; their matrix (B, C) never exists as a whole."""
        expected, repeats = self.log_expected, None if self.history is None else Repeats(self.candidates, *self.history)
        bias = self.head.popularity * self.candidates.log_degree
        if expected.ndim == 1:
            bias = bias - expected

        def score(
            rows: slice, users: torch.Tensor, vectors: torch.Tensor, bias: torch.Tensor, *repeat: torch.Tensor
        ) -> torch.Tensor:
            logits = best_of(users, vectors, bias)
            if expected.ndim == 2:
                logits = logits - expected[rows]
            return logits if repeats is None else repeats.add(rows, logits, *repeat)

        scaled, more = self.users * self.head.log_scale.exp(), () if repeats is None else (self.head.repeat,)
        return by_rows(score, losses, scaled, self.vectors, bias, *more)


class Repeats:
    """Adds to logits what it means that users had candidates before: at a few places where candidates are distinct."""

    def __init__(self, candidates: Candidates, history: torch.Tensor, mask: torch.Tensor) -> None:
        """`history`: products int64 (B, T) of which those in `mask` (B, T) count."""
        self._candidates, self._history, self._mask = candidates, history, mask
        self._sorted = candidates.nodes.sort() if candidates.distinct else None

    def add(self, rows: slice, logits: torch.Tensor, repeat: torch.Tensor) -> torch.Tensor:
        """`logits` (b, C) of `rows` with the head's `repeat` (2,), written over where that is enough."""
        history, mask = self._history[rows], self._mask[rows]
        if self._sorted is None:
            return logits + repeated(repeat, history_share(history, mask, self._candidates.nodes))
        columns, share = history_places(history, mask, self._sorted.indices, self._sorted.values)
        return logits.scatter_add_(1, columns, repeated(repeat, share))
