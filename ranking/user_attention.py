"""Causal attention over jagged rows, on padded length buckets; a jagged kernel can take the place of one function.

Letters: N events end to end, U rows, h heads, c components of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

_SHORTEST = 4
"""Rows of up to 2^4 events share a bucket; every further bucket holds lengths up to twice those of the one before."""

_ROTARY_BASE = 10_000.0


def causal_attention(query: Tensor, key: Tensor, value: Tensor, offsets: Tensor) -> Tensor:
    """(N, h, c) three times -> (N, h, c): each event attends to itself and the earlier events of its row.

    Rows of alike length are padded on the right to the longest of them, where the causal mask hides the padding. At
    most half of a bucket is padding (rows shorter than 17 aside).
    """
    out, lengths = torch.zeros_like(value), offsets.diff()
    bucket = torch.log2(lengths.clamp_min(1).double()).ceil().long().clamp_min(_SHORTEST)
    for one in sorted(set(bucket[lengths > 0].tolist())):
        rows = torch.nonzero((bucket == one) & (lengths > 0)).flatten()
        column = torch.arange(int(lengths[rows].max()), device=offsets.device)
        there = column < lengths[rows, None]
        place = torch.where(there, offsets[rows, None] + column, offsets[rows, None])
        asked, held, told = (part[place].transpose(1, 2) for part in (query, key, value))
        seen = F.scaled_dot_product_attention(asked, held, told, is_causal=True).transpose(1, 2)
        out = out.index_copy(0, place[there], seen[there])
    return out


def rotary_angles(place: Tensor, components: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine (N, 1, components // 2) by which `rotate` turns heads of `components` at places (N,)."""
    half = components // 2
    speed = _ROTARY_BASE ** (-torch.arange(half, device=place.device, dtype=torch.float32) / half)
    angle = (place[:, None].float() * speed)[:, None]
    return angle.cos(), angle.sin()


def rotate(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """(N, h, c) turned by its place: scores of two events then depend on how many lie between them (RoFormer)."""
    cosine, sine = angles
    one, other = x.chunk(2, dim=-1)
    return torch.cat([one * cosine - other * sine, one * sine + other * cosine], dim=-1)
