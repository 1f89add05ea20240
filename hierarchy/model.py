"""The trainable whole: the encoder and the head that turns cosines into link logits."""

from __future__ import annotations

import math

import torch
from torch import nn

from hierarchy.transformer import EncoderShape, InterestEncoder


class LinkHead(nn.Module):
    """logit = cosine / temperature + popularity * log(1 + degree).

    Directions carry meaning; how popular a thing is stays beside them as one learnable scale.
    """

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature)))
        self.popularity = nn.Parameter(torch.tensor(0.5))

    def forward(self, users: torch.Tensor, candidates: torch.Tensor, log_degree: torch.Tensor) -> torch.Tensor:
        """Logits (B, C) of users (B, Q, d) and candidates (C, d), log1p degrees (C,); the best of Q vectors counts."""
        cosine = torch.einsum("bqd,cd->bqc", users, candidates).amax(dim=1)
        return cosine * self.log_scale.exp() + self.popularity * log_degree

    def popularity_in_cosine(self) -> float:
        """What one unit of log1p degree is worth in units of cosine."""
        return float(self.popularity.detach() / self.log_scale.detach().exp())


class Learner(nn.Module):
    """Encoder and link head; student and teacher are two of these."""

    def __init__(self, shape: EncoderShape, temperature: float) -> None:
        super().__init__()
        self.encoder = InterestEncoder(shape)
        self.link = LinkHead(temperature)
