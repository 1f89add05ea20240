"""How much of a user's history each candidate of a step is: the part of the link logits that vectors cannot say."""

from __future__ import annotations

import torch


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


def history_places(
    history: torch.Tensor, mask: torch.Tensor, order: torch.Tensor, ordered: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """`history_share` without its zeros, for distinct candidates: columns int64 (B, T) and the share of each (B, T).

    `ordered` (C,) are the candidates sorted, `order` the columns they come from. A share stands at the first token of
    its product and is 0 at others, also at products that are no candidates. Time O(B T (T + log C)), memory O(B T T).
    """
    place = torch.searchsorted(ordered, history).clamp_(max=len(ordered) - 1)
    found = mask & (ordered[place] == history)
    same = (place[:, :, None] == place[:, None, :]) & found[:, None, :]
    first = found & ~same.tril(-1).any(dim=2)
    share = same.sum(dim=2) / mask.sum(dim=1, keepdim=True).clamp_min(1)
    return order[place], torch.where(first, share, 0.0)
