"""A training step as one CUDA graph: small models spend their time in launching kernels, which a replay saves.

The step must be the same work every time: fixed shapes, nothing read back to the host, an optimiser that keeps its
state on the device (`capturable`), automatic mixed precision without its weight cache. Draws of the device's default
generator differ from replay to replay, as they do from step to step.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

_WARM_UP = 3


class Replayed:
    """`step(*inputs) -> loss`, recorded at its first call when `record` is set and the inputs lie on a GPU."""

    def __init__(self, step: Callable[..., torch.Tensor], record: bool) -> None:
        """`record` must be False on a CPU. Inputs of all calls have the shapes of the first."""
        self._step = step
        self._record = record
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: tuple[torch.Tensor, ...] = ()
        self._loss = torch.empty(0)

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Loss of one step; overwritten by the next call."""
        if not self._record:
            return self._step(*inputs)
        if self._graph is None:
            self._capture(inputs)
        assert self._graph is not None
        for place, value in zip(self._inputs, inputs, strict=True):
            place.copy_(value)
        self._graph.replay()
        return self._loss

    def _capture(self, inputs: tuple[torch.Tensor, ...]) -> None:
        """A few steps on a side stream first: libraries set themselves up, and the optimiser makes its state."""
        self._inputs = tuple(value.clone() for value in inputs)
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                self._step(*self._inputs)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._loss = self._step(*self._inputs)
        self._graph = graph
