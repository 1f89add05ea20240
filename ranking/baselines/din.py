"""Deep Interest Network (Zhou et al., KDD 2018): the history summed by its relevance to the candidate.

A small network, the activation unit, weighs each past event against the candidate; weights are not normalised, so that
a strong interest adds up to a large vector. The heads are the ranker's, with crosses the paper's network lacks: what
differs from the ranker is how the history is read, and the baseline is the stronger for it.

Letters: B rows, V visits, P (row, past event) pairs, d width, h hidden.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ranking.baselines.fields import Fields, pairs
from ranking.batch import Buckets, JaggedBatch
from ranking.heads import Heads
from ranking.reader import Level

_EPSILON = 1e-8
_MOMENTUM = 0.1


class Dice(nn.Module):
    """p x + (1 - p) alpha x with p = sigmoid of the standardised x: a PReLU whose corner follows the data (section 5).

    The statistics are floats of the state, as the averaged weights need; scoring uses the running ones, so that a row's
    score does not depend on its batch.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """(P, h) -> (P, h)."""
        mean, variance = self.mean, self.variance
        if self.training and len(x) > 1:
            mean, variance = x.mean(0), x.var(0, unbiased=False)
            with torch.no_grad():
                self.mean.lerp_(mean, _MOMENTUM)
                self.variance.lerp_(variance, _MOMENTUM)
        gate = torch.sigmoid((x - mean) / torch.sqrt(variance + _EPSILON))
        return x * (gate + (1 - gate) * self.alpha)


class ActivationUnit(nn.Module):
    """Relevance (P,) of event k to candidate q, from q, k, q - k and q * k through one hidden layer.

    A linear map of q - k is one of q and one of k, so these two are taken before pairing; only q * k is made per pair.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.candidate, self.event = nn.Linear(width, hidden), nn.Linear(width, hidden, bias=False)
        self.both = nn.Linear(width, hidden, bias=False)
        self.dice = Dice(hidden)
        self.out = nn.Linear(hidden, 1)
        # Sums over fifty events at random weights would drown all other fields; from 0 they grow as far as they help.
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, candidate: Tensor, event: Tensor, row: Tensor, place: Tensor) -> Tensor:
        """candidate (B, d), event (total, d), and for each pair its row and the place of its event, both (P,)."""
        hidden = self.candidate(candidate)[row] + self.event(event)[place]
        hidden = hidden + self.both(candidate[row] * event[place])
        weight: Tensor = self.out(self.dice(hidden)).squeeze(1)
        return weight


class DIN(nn.Module):
    """Logits of both tasks from candidate, its history by relevance and as a mean, and flat fields."""

    def __init__(
        self,
        buckets: Buckets,
        content_dim: int,
        width: int = 32,
        dropout: float = 0.1,
        hidden: int = 36,
        num_crosses: int = 2,
        levels: tuple[Level, ...] = (),
    ) -> None:
        super().__init__()
        self.fields = Fields(buckets, content_dim, width, levels)
        self.unit = ActivationUnit(width, hidden)
        self.heads = Heads(self.fields.size + 4 * width, 2 * width, dropout, num_crosses)

    def forward(self, batch: JaggedBatch) -> tuple[Tensor, Tensor]:
        """(immediate, deep) logits, each (B,)."""
        items = self.fields.items(batch)
        events = self.fields.events(batch, items)
        candidate = items[batch.candidate]
        row, place = pairs(batch)
        seen = events[place]
        weight = self.unit(candidate, events, row, place)
        pooled = torch.zeros_like(candidate).index_add(0, row, seen * weight.unsqueeze(1))
        count = batch.history.lengths[batch.visit].clamp_min(1).unsqueeze(1)
        mean = torch.zeros_like(candidate).index_add(0, row, seen) / count
        # The paper's network has to learn the match of candidate and pooled history; the product states it.
        fields = [candidate, pooled, mean, candidate * pooled, self.fields.flat(batch)]
        immediate, deep = self.heads(torch.cat(fields, dim=1))
        return immediate, deep
