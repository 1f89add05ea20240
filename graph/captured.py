"""A sampler's whole call recorded once as a CUDA graph, so that small batches no longer wait for the host.

Sampling is some hundred short kernels. Launched one by one they keep the host busy for longer than the device
unless the batch is very large; replayed as one graph they cost what the device needs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graph.neighbourhood import Barred
from graph.sampler import TemporalSampler, TokenSet, partner_type


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
        self.size = size
        self._inputs = torch.zeros((3, size), dtype=torch.int64, device=sampler.device)
        self._inputs[2] = -1
        self._seed = torch.zeros((), dtype=torch.int64, device=sampler.device)
        nodes, times, barred = self._inputs
        partner: Barred = (exclude_type or partner_type(node_type), barred)

        def call() -> TokenSet:
            return sampler.draw(node_type, nodes, times, self._seed, partner)

        # What is made on first use (blocks of the graph, compiled kernels) must not be part of the recording.
        stream = torch.cuda.Stream(sampler.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(sampler.device))
        with torch.cuda.stream(stream):
            call()
        torch.cuda.current_stream(sampler.device).wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._tokens = call()

    def sample(self, nodes: Tensor, times: Tensor, seed: int, exclude: Tensor | None = None) -> TokenSet:
        """As `TemporalSampler.sample`, for tensors (size,) on the device."""
        for row, given in zip(self._inputs, (nodes, times, exclude), strict=True):
            if given is None:
                row.fill_(-1)
            else:
                row.copy_(given)
        self._seed.fill_(seed)
        self._graph.replay()
        return self._tokens
