"""Additive attention biases: small tables over what is known of a token beside its content.

Edge type, hop, age, degree, walk weight and rank in time are bucketed once for all layers; a table row per bucket and
head is added to the attention logit, as Graphormer does for degree and distance (Ying et al., 2021, arXiv:2106.05234).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import nn

from graph.sampler import TokenSet
from graph.store import RELATIONS
from hierarchy.lookup import sums_of

AGE_BUCKETS = 17
DEGREE_BUCKETS = 16
WALK_BUCKETS = 16
_HOPS = 3
_MICROS_PER_HOUR = 3.6e9
RANK_BUCKETS = 64
_SIZES = (len(RELATIONS), _HOPS, AGE_BUCKETS, DEGREE_BUCKETS, WALK_BUCKETS, RANK_BUCKETS)
_OFFSETS = (0, *itertools.accumulate(_SIZES[:-1]))
BIAS_ROWS = sum(_SIZES)
TOKEN_BIASES = ("edge_type", "hop", "age", "degree", "walk", "rank")
"""Names of the tables, in order."""
HUB_BIASES = ("level", "mass")
"""Names of the two biases of primitives."""
BIASES = (*TOKEN_BIASES, *HUB_BIASES)


def bias_index(tokens: TokenSet) -> torch.Tensor:
    """Rows of a bias table for each token, int64 (B, T, 6): relation, hop, log-age, log-degree, walk weight, rank.

    Ages fall in buckets that double from one hour on, timeless links in the last one; degrees in half steps of
    log1p; walk weights in halvings. The rank counts a seed's direct engagement from the newest, 0, on, and is the last
    bucket for everything else. Padding tokens get valid rows that the mask makes irrelevant.
    """
    hours = tokens.age.clamp(min=0).to(torch.float64) / _MICROS_PER_HOUR
    age = torch.log2(1.0 + hours).clamp_(max=AGE_BUCKETS - 2)
    walk = -torch.log2(tokens.weight.clamp(2.0 ** (1 - WALK_BUCKETS), 1.0))
    columns = (
        tokens.relation.clamp(min=0),
        tokens.hop.clamp(0, _HOPS - 1),
        torch.where(tokens.age < 0, AGE_BUCKETS - 1, age),
        (2.0 * tokens.degree).clamp_(max=DEGREE_BUCKETS - 1),
        walk.clamp_(max=WALK_BUCKETS - 1),
        _rank(tokens),
    )
    return torch.stack([c.to(torch.int64) + o for c, o in zip(columns, _OFFSETS, strict=True)], dim=-1)


def _rank(tokens: TokenSet) -> torch.Tensor:
    direct = tokens.mask & (tokens.hop == 1) & (tokens.age >= 0)
    newest_first = torch.where(direct, tokens.age, torch.iinfo(torch.int64).max).argsort(dim=1, stable=True)
    rank = torch.empty_like(newest_first)
    rank.scatter_(1, newest_first, torch.arange(rank.shape[1], device=rank.device).expand_as(rank))
    return torch.where(direct, rank.clamp_(max=RANK_BUCKETS - 2), RANK_BUCKETS - 1)


class BiasTables(nn.Module):
    """Sum of a look-up in each table for each token and column; zero at the start, so that attention begins unbiased.

    One table serves all heads of all layers, so that its gradient is gathered once. The tables named in `off` stay
    zero and get no gradient.
    """

    kept: torch.Tensor

    def __init__(self, columns: int, off: Sequence[str] = ()) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(BIAS_ROWS, columns))
        kept = [float(name not in off) for name, size in zip(TOKEN_BIASES, _SIZES, strict=True) for _ in range(size)]
        self.register_buffer("kept", torch.tensor(kept)[:, None], persistent=False)
        self.all_on = not set(off) & set(TOKEN_BIASES)

    @torch.no_grad()
    def start_with_decay(self, column: int, decay: float) -> None:
        """Let `column` begin with a weight of `decay` ** rank, as profiles that forget do; other tokens stay at 1."""
        first = _OFFSETS[TOKEN_BIASES.index("rank")]
        ranks = torch.arange(RANK_BUCKETS - 1, dtype=self.table.dtype, device=self.table.device)
        self.table[first : first + RANK_BUCKETS - 1, column] = ranks * math.log(decay)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        """Biases (B, columns, T) for `index` (B, T, 6) made by `bias_index`."""
        batch, tokens, features = index.shape
        table = self.table if self.all_on else self.table * self.kept
        summed = sums_of(table, index.reshape(-1, features))
        return summed.view(batch, tokens, self.table.shape[1]).transpose(1, 2)


class HubBias(nn.Module):
    """Bias of a primitive: a learned value per level and head, plus a learned share of its clamped log-mass.

    The parts named in `off` stay zero and get no gradient.
    """

    def __init__(self, num_levels: int, heads: int, off: Sequence[str] = ()) -> None:
        super().__init__()
        self.parts = tuple(float(name not in off) for name in HUB_BIASES)
        self.level = nn.Parameter(torch.zeros(num_levels, heads))
        self.mass_scale = nn.Parameter(torch.zeros(heads))

    def forward(self, level: torch.Tensor, log_mass: torch.Tensor) -> torch.Tensor:
        """Biases (B, heads, P) of hubs with `level` int64 (P,) and `log_mass` (B, P)."""
        level_on, mass_on = self.parts
        of_mass = self.mass_scale[None, :, None] * log_mass[:, None, :]
        return level_on * self.level[level].t()[None] + mass_on * of_mass
