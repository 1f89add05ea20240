"""The trainable whole: the encoder and the head that turns cosines into link logits."""

from __future__ import annotations

import math

import torch
from torch import nn

from hierarchy.repeats import TYPICAL, repeated
from hierarchy.transformer import EncoderShape, InterestEncoder


class LinkHead(nn.Module):
    """logit = cosine / temperature + popularity * log(1 + degree) + what it means that a user had the thing before.

    Directions carry meaning; how popular a thing is stays beside them as one learnable scale, and so do repeats, which
    are rare in one shop and most of another's sales (RepeatNet: Ren et al., 2019, arXiv:1812.02646).
    """

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature)))
        self.popularity = nn.Parameter(torch.tensor(0.5))
        self.repeat = nn.Parameter(torch.zeros(2))

    def forward(
        self,
        users: torch.Tensor,
        candidates: torch.Tensor,
        log_degree: torch.Tensor,
        share: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Logits (B, C) of users (B, Q, d) and candidates (C, d), log1p degrees (C,); the best of Q vectors counts.

        `share` (B, C): the part of a user's history that each candidate is, 0 for what is new; None: all is new.
        """
        logits = best_of(users * self.log_scale.exp(), candidates, self.popularity * log_degree)
        return logits if share is None else logits + repeated(self.repeat, share)

    def popularity_in_cosine(self) -> float:
        """What one unit of log1p degree is worth in units of cosine."""
        return float(self.popularity.detach() / self.log_scale.detach().exp())

    def repeats_in_cosine(self) -> tuple[float, float]:
        """What a repeat is worth in units of cosine: for a share of 1, and for each unit of its logarithm."""
        had, log_share = (self.repeat.detach() / self.log_scale.detach().exp()).tolist()
        return had - log_share * TYPICAL, log_share


def best_of(users: torch.Tensor, candidates: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """max over Q of users (B, Q, d) . candidates (C, d), plus bias (C,): (B, C), which autograd does not need again."""
    if users.shape[1] == 1:
        return torch.addmm(bias, users[:, 0], candidates.t())
    return torch.einsum("bqd,cd->bqc", users, candidates).amax(dim=1) + bias


class Learner(nn.Module):
    """Encoder and link head; student and teacher are two of these."""

    def __init__(self, shape: EncoderShape, temperature: float) -> None:
        super().__init__()
        self.encoder = InterestEncoder(shape)
        self.link = LinkHead(temperature)
