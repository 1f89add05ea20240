"""Link logits of a training step's users and candidates, made a few rows at a time for the losses that need them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hierarchy.candidates import Candidates
from hierarchy.losses.by_rows import VOID, RowLoss, by_rows
from hierarchy.losses.link import Barred
from hierarchy.model import LinkHead, best_of
from hierarchy.repeats import Had, repeated


@dataclass(frozen=True)
class LinkScores:
    """What the link head says of users (B, Q, d) and vectors (C, d) of `candidates`.

    history: products int64 (B, T) that users had and which of them count (B, T). repeats: whether it matters to a
    logit that its product is one of them.
    """

    head: LinkHead
    users: torch.Tensor
    vectors: torch.Tensor
    candidates: Candidates
    history: tuple[torch.Tensor, torch.Tensor]
    repeats: bool = False

    @property
    def log_expected(self) -> torch.Tensor:
        """Log-expectations (C,) or (B, C) of the candidates, finite."""
        return self.candidates.log_expected.clamp(max=VOID)

    @property
    def had(self) -> Had:
        """The candidates that users had."""
        return Had(self.candidates.nodes, self.candidates.distinct, *self.history)

    def barred(self, known: torch.Tensor | tuple[torch.Tensor, torch.Tensor] | None = None) -> Barred:
        """Candidates that are no negatives: a row's positive and what it is `known` to have."""
        return Barred(self.candidates.nodes, self.candidates.targets, self.candidates.distinct, known)

    def positive(self) -> torch.Tensor:
        """Logits (B,) of each row's own target. A row without one has an arbitrary candidate's, and no weight."""
        targets = self.candidates.targets
        cosine = (self.users * self.vectors[targets][:, None, :]).sum(dim=2).amax(dim=1)
        logits = cosine * self.head.log_scale.exp() + self.head.popularity * self.candidates.log_degree[targets]
        if not self.repeats:
            return logits
        history, mask = self.history
        own = (history == self.candidates.nodes[targets][:, None]) & mask
        return logits + repeated(self.head.repeat, own.sum(dim=1) / mask.sum(dim=1).clamp_min(1))

    def losses(self, losses: Sequence[RowLoss]) -> tuple[torch.Tensor, ...]:
        """`losses` (B,) each, of logits with log_expected subtracted; their matrix (B, C) never exists as a whole."""
        expected, had = self.log_expected, self.had if self.repeats else None
        bias = self.head.popularity * self.candidates.log_degree
        if expected.ndim == 1:
            bias = bias - expected

        def score(
            rows: slice, users: torch.Tensor, vectors: torch.Tensor, bias: torch.Tensor, *repeat: torch.Tensor
        ) -> torch.Tensor:
            logits = best_of(users, vectors, bias)
            if expected.ndim == 2:
                logits = logits - expected[rows]
            return logits if had is None else had.add(rows, logits, *repeat)

        scaled, more = self.users * self.head.log_scale.exp(), () if had is None else (self.head.repeat,)
        return by_rows(score, losses, scaled, self.vectors, bias, *more)
