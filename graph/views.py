"""Views of a token set for cross-view learning: the same tokens, some of them masked.

A view is what a student may see while its teacher sees everything (as crops are in DINO: Caron et al., 2021,
arXiv:2104.14294). Only `mask` changes; ages and degrees stay those at the seed time.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

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
    oldest_first = np.argsort(np.where(events, -tokens.age, 1), axis=1, kind="stable")
    rank = np.empty_like(oldest_first)
    np.put_along_axis(rank, oldest_first, np.arange(events.shape[1])[None, :], axis=1)
    quota = np.ceil(share * events.sum(axis=1, keepdims=True))
    return dataclasses.replace(tokens, mask=(events & (rank < quota)) | (tokens.mask & _timeless(tokens)))


def _timeless(tokens: TokenSet) -> NDArray[np.bool_]:
    return tokens.age < 0
