"""Link prediction: sampled softmax with logQ correction.

Bengio & Senecal (2008) and Yi et al. (2019, "Sampling-bias-corrected neural modeling", RecSys): each sampled negative
stands for 1 / (its expected number of draws) candidates, so log(expected draws) is SUBTRACTED from its logit. The
positive is certain to be present and needs none. The estimate of the partition sum is then unbiased. Where every
candidate is scored, each is expected once and the same formula is the full softmax.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import softplus


def corrected_logits(negatives: torch.Tensor, log_expected: torch.Tensor, absent: torch.Tensor) -> torch.Tensor:
    """Logits (B, C) whose exponentials sum to an unbiased estimate of the partition sum without the positive, fp32.

    log_expected (C,) or (B, C): log of how often each candidate is drawn on average, given the row's positive. absent
    (B, C) bool: no negative of the row (its positive itself, or another product that it engages with).
    """
    return (negatives.float() - log_expected).masked_fill(absent, -torch.inf)


def sampled_softmax(
    positive: torch.Tensor,
    negatives: torch.Tensor,
    log_expected: torch.Tensor,
    accidental: torch.Tensor,
    weights: torch.Tensor,
) -> torch.Tensor:
    """Weighted mean of -positive + log(exp(positive) + sum_j exp(negative_j) / expected_j).

    positive (B,): logits of the true pairs. negatives (B, C): logits of the shared candidates. log_expected (C,) or (B,
    C): log of how often each candidate is drawn on average. accidental (B, C) bool: the candidate IS the row's
    positive, so it is left out. weights (B,) >= 0: importance of each row, e.g. its place in the funnel. Returns a
    scalar, fp32.
    """
    corrected = corrected_logits(negatives, log_expected, accidental)
    return link_loss(positive, torch.logsumexp(corrected, dim=1), weights)


def link_loss(positive: torch.Tensor, others: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The same from `others` (B,): the log of the partition sum without the positive."""
    losses = softplus(others - positive.float())
    return (losses * weights).sum() / weights.sum().clamp_min(1e-12)


@dataclass(frozen=True)
class Barred:
    """Candidates that are no negatives of a row: its positive, wherever it comes, and others it is known to have.

    nodes (C,) and targets (B,) int64 as of Candidates. `distinct`: nodes come once, so a positive is in one column
    only. `known`: bool (B, C), or pairs (row, column) int64 (P,) where nodes are distinct, or None.
    """

    nodes: torch.Tensor
    targets: torch.Tensor
    distinct: bool
    known: torch.Tensor | tuple[torch.Tensor, torch.Tensor] | None = None

    @property
    def few(self) -> bool:
        """Whether they are so few that `places` names them all."""
        return self.distinct and not isinstance(self.known, torch.Tensor)

    def places(self, rows: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Pairs (row, column) of a piece of rows where there are `few`, some of them more than once; time O(b + P).

        Waits for no device: a pair of another piece becomes a positive of this one.
        """
        targets = self.targets[rows]
        own = torch.arange(len(targets), device=targets.device)
        if not isinstance(self.known, tuple):
            return own, targets
        row, column = self.known
        here = (row >= rows.start) & (row < rows.stop)
        moved = torch.where(here, row - rows.start, 0), torch.where(here, column, targets[0])
        return torch.cat([own, moved[0]]), torch.cat([targets, moved[1]])

    def fill(self, rows: slice, logits: torch.Tensor) -> torch.Tensor:
        """`logits` (b, C) of a piece of rows with -inf where they are barred, in place."""
        if self.few:
            return _put(logits, self.places(rows), -torch.inf)
        logits.masked_fill_(self.nodes[None, :] == self.nodes[self.targets[rows]][:, None], -torch.inf)
        if isinstance(self.known, tuple):
            raise ValueError("expected known products as a mask where candidates can come twice, got pairs")
        return logits if self.known is None else logits.masked_fill_(self.known[rows], -torch.inf)


@dataclass(frozen=True)
class LogPartition:
    """As a RowLoss: log sum exp of a row's corrected logits, without the positive and what else is `barred`."""

    barred: Barred

    def value(self, rows: slice, logits: torch.Tensor) -> torch.Tensor:
        """Logs of the partition sums (b,), -inf for a row without negatives."""
        if not self.barred.few:
            return torch.logsumexp(self.barred.fill(rows, logits.clone()), dim=1)
        places = self.barred.places(rows)
        kept = logits[places]
        _put(logits, places, -torch.inf)
        found = torch.logsumexp(logits, dim=1)
        logits[places] = kept
        return found

    def gradient(self, rows: slice, logits: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """The softmax (b, C) of the row's negatives."""
        there = torch.where(torch.isfinite(value), value, 0.0)
        return self.barred.fill(rows, logits - there[:, None]).exp_()


def _put(logits: torch.Tensor, places: tuple[torch.Tensor, torch.Tensor], value: float) -> torch.Tensor:
    """`value` at `places`, in place. `logits[places] = value` would send the value from the host and wait for it."""
    return logits.index_put_(places, logits.new_full((), value))
