"""Views of a token set for cross-view learning: the same tokens, some of them masked.

A view is what a student may see while its teacher sees everything (as crops are in DINO: Caron et al., 2021,
arXiv:2104.14294). Only `mask` changes; ages and degrees stay those at the seed time.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from graph.sampler import TokenSet


def content_only(tokens: TokenSet) -> TokenSet:
    """Catalogue links only: what is known of an entity nobody has engaged with yet."""
    return dataclasses.replace(tokens, mask=tokens.mask & _timeless(tokens))


def engagement_only(tokens: TokenSet) -> TokenSet:
    """Events only, direct and walked, without catalogue links."""
    return dataclasses.replace(tokens, mask=tokens.mask & ~_timeless(tokens))


def early_window(tokens: TokenSet, share: float = 0.5) -> TokenSet:
    """Catalogue links, and the oldest `share` (0 to 1, rounded up) of each seed's event tokens."""
    events = tokens.mask & ~_timeless(tokens)
    oldest_first = torch.where(events, -tokens.age, 1).argsort(dim=1, stable=True)
    # The order of the order is each token's rank.
    rank = oldest_first.argsort(dim=1)
    quota = (share * events.sum(dim=1, keepdim=True)).ceil()
    return dataclasses.replace(tokens, mask=(events & (rank < quota)) | (tokens.mask & _timeless(tokens)))


def _timeless(tokens: TokenSet) -> Tensor:
    return tokens.age < 0
