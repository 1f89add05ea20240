"""A queue of recent teacher vectors, so that balanced assignment sees more rows than there are primitives.

As in SwAV (Caron et al., 2020, section 3.1): with fewer vectors than primitives, balance leaves some of them empty.
"""

from __future__ import annotations

import torch
from torch import nn


class VectorMemory(nn.Module):
    """The last `size` vectors pushed, in a ring; rows never written are not returned."""

    vectors: torch.Tensor
    pushed: torch.Tensor

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("vectors", torch.zeros(size, dim))
        self.register_buffer("pushed", torch.zeros((), dtype=torch.int64))
        # The host's own count: to ask a GPU for it would be to wait for the GPU.
        self._count = 0
        self.register_load_state_dict_post_hook(lambda module, _: module._recount())  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def push(self, vectors: torch.Tensor) -> None:
        """Add (B, d), replacing the oldest; of more than `size` the last ones stay."""
        kept = vectors[-len(self.vectors) :]
        at = torch.arange(self._count, self._count + len(kept), device=kept.device) % len(self.vectors)
        self.vectors[at] = kept
        self.pushed += len(kept)
        self._count += len(kept)

    def stored(self) -> torch.Tensor:
        """The vectors held (N, d), in ring order."""
        return self.vectors[: min(self._count, len(self.vectors))]

    def _recount(self) -> None:
        self._count = int(self.pushed)
