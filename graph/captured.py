"""A sampler's whole call recorded once as a CUDA graph, so that small batches no longer wait for the host."""

from __future__ import annotations

import torch
from torch import Tensor

from graph.sampler import TemporalSampler, TokenSet, partner_type
from kernels.captured import Captured


class CapturedSampler:
    """Token sets of `size` seeds of one node type at a time; the same as `TemporalSampler.sample` gives.

    The tensors of a token set are overwritten by the next call. Raises UsageError for an unknown node type, and
    ValueError unless the sampler's device is a GPU.
    """

    def __init__(self, sampler: TemporalSampler, node_type: str, size: int, exclude_type: str | None = None) -> None:
        if sampler.device.type != "cuda":
            raise ValueError(
                f"expected a sampler on a cuda device, got {sampler.device}: only there calls are captured"
            )
        self.size, kind = size, exclude_type or partner_type(node_type)

        def call(nodes: Tensor, times: Tensor, barred: Tensor, seed: Tensor) -> TokenSet:
            return sampler.draw(node_type, nodes, times, seed, (kind, barred))

        self._call, self._device = Captured(call, sampler.device, warm=1), sampler.device

    def sample(self, nodes: Tensor, times: Tensor, seed: int, exclude: Tensor | None = None) -> TokenSet:
        """As `TemporalSampler.sample`, for tensors (size,) on the device."""
        barred = torch.full_like(nodes, -1) if exclude is None else exclude
        found: TokenSet = self._call(nodes, times, barred, torch.full((), seed, dtype=torch.int64, device=self._device))
        return found
