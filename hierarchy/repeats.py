"""How much of a user's history each candidate of a step is: the part of the link logits that vectors cannot say."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from hierarchy.losses.by_rows import VOID

TYPICAL = math.log(1 / 50)
"""Log of a common share of a history: around it the level and the slope of repeats are learned apart."""


def history_share(history: torch.Tensor, mask: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
    """Share (B, C) of `history` int64 (B, T), where `mask`, that each of `candidates` int64 (C,) is; fp32, rows <= 1.

    A share does not depend on how many tokens were sampled. Candidates may come twice and in any order. Time
    O(B (T log C + C)), memory O(B (T + C)); waits for no device.
    """
    ordered = candidates.sort().values
    place = torch.searchsorted(ordered, history).clamp_(max=len(ordered) - 1)
    found = mask & (ordered[place] == history)
    counts = torch.zeros((len(history), len(ordered)), device=history.device)
    counts.scatter_add_(1, place, found.float())
    # Of equal candidates the first in order holds the count.
    own = counts[:, torch.searchsorted(ordered, candidates)]
    return own / mask.sum(dim=1, keepdim=True).clamp_min(1)


def repeated(repeat: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """What is added for a `share` (...) of a history: repeat[0] + repeat[1] * ln(50 share), nothing for share 0."""
    had = share > 0
    log_share = torch.log(torch.where(had, share, 1.0)) - TYPICAL
    return torch.where(had, repeat[0] + repeat[1] * log_share, 0.0)


def history_places(
    history: torch.Tensor, mask: torch.Tensor, order: torch.Tensor, ordered: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """`history_share` without its zeros, for distinct candidates: columns int64 (B, T) and the share of each (B, T).

    `ordered` (C,) are the candidates sorted, `order` the columns they come from. A product's share stands once, other
    places hold 0 and any column. Time O(B T (log T + log C)), memory O(B T); waits for no device.
    """
    place = torch.searchsorted(ordered, history.contiguous()).clamp_(max=len(ordered) - 1)
    found = mask & (ordered[place] == history)
    place = torch.where(found, place, len(ordered)).sort(dim=1).values
    first, after = torch.searchsorted(place, place), torch.searchsorted(place, place, right=True)
    once = (first == torch.arange(history.shape[1], device=history.device)) & (place < len(ordered))
    share = (after - first) / mask.sum(dim=1, keepdim=True).clamp_min(1)
    return order[place.clamp_(max=len(ordered) - 1)], torch.where(once, share, 0.0)


class Had:
    """Which candidates users had before: a few places a row where candidates are distinct, else a share for each."""

    def __init__(self, nodes: torch.Tensor, distinct: bool, history: torch.Tensor, mask: torch.Tensor) -> None:
        """`nodes` (C,): the candidates. `history`: products int64 (B, T) of which those in `mask` (B, T) count."""
        self._nodes, self._history, self._mask = nodes, history, mask
        self._sorted = nodes.sort() if distinct else None

    def add(self, rows: slice, logits: torch.Tensor, repeat: torch.Tensor) -> torch.Tensor:
        """`logits` (b, C) of `rows` with what repeats are worth, written over where that is enough."""
        if self._sorted is None:
            return logits + repeated(repeat, self._shares(rows))
        columns, share = self._places(rows, self._sorted)
        return logits.scatter_add_(1, columns, repeated(repeat, share))

    @contextmanager
    def out(self, rows: slice, logits: torch.Tensor) -> Iterator[torch.Tensor]:
        """Within it, `logits` (b, C) of `rows` in which what users had is VOID; `logits` are as before afterwards."""
        if self._sorted is None:
            yield logits.masked_fill(self._shares(rows) > 0, -VOID)
            return
        columns, share = self._places(rows, self._sorted)
        kept = logits.gather(1, columns)
        yield logits.scatter_add_(1, columns, torch.where(share > 0, -VOID, 0.0).to(logits.dtype))
        logits.scatter_(1, columns, kept)

    def _shares(self, rows: slice) -> torch.Tensor:
        return history_share(self._history[rows], self._mask[rows], self._nodes)

    def _places(self, rows: slice, ordered: torch.return_types.sort) -> tuple[torch.Tensor, torch.Tensor]:
        return history_places(self._history[rows], self._mask[rows], ordered.indices, ordered.values)
