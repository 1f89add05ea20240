"""Calls recorded once as CUDA graphs and replayed, so that many short kernels no longer wait for the host.

Launched one by one, a thousand short kernels keep the host busy for longer than the device; replayed as one graph they
cost what the device needs.
"""

from __future__ import annotations

import dataclasses
import gc
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

_ALONE = threading.RLock()  # while one thread records, the default generator belongs to the recording


class Captured:
    """A function of tensors; on a GPU one CUDA graph per form of its arguments, elsewhere the function itself.

    Arguments and results are tensors in tuples, lists, mappings and dataclasses. Two calls have one form when their
    tensors have the same shapes and types, and everything else is equal (or, if it cannot be compared, identical). The
    function must do the same for all calls of a form, wait for nothing on the host, and draw random numbers from the
    device's default generator only.

    Results are overwritten by the next call, unless `fresh`, when they are copies: all forms compute in one memory.
    """

    def __init__(
        self, function: Callable[..., Any], device: torch.device | str, fresh: bool = False, warm: int = 3
    ) -> None:
        """`warm`: calls of a form that are made the plain way first, at least one, since what is allocated or compiled
        on first use must not be recorded; with more, forms that hardly ever come back are not recorded either."""
        self.function, self.device, self.fresh, self.warm = function, torch.device(device), fresh, warm
        self._calls: dict[Hashable, int] = {}
        self._recorded: dict[Hashable, _Recording] = {}
        self._memory: Any = None
        self.most = 12
        """Forms that are recorded at most, each with its arguments and results; more are called the plain way."""

    def __call__(self, *given: Any) -> Any:
        """What the function gives. An argument that is the very tensor of the call before must not have changed."""
        if self.device.type != "cuda":
            return self.function(*given)
        with _ALONE:
            return self._found(given)

    @property
    def recorded(self) -> int:
        """Forms that have been recorded."""
        return len(self._recorded)

    def forget(self) -> None:
        """Let go of what was recorded, and of its memory."""
        self._recorded.clear()
        self._calls.clear()
        self._memory = None

    def _found(self, given: tuple[Any, ...]) -> Any:
        tensors: list[torch.Tensor] = []
        form = _form(given, tensors)
        if form not in self._recorded:
            calls = self._calls[form] = self._calls.get(form, 0) + 1
            if calls <= self.warm or len(self._recorded) >= self.most:
                return self.function(*given)
            self._memory = self._memory or torch.cuda.graph_pool_handle()
            self._recorded[form] = _Recording(self.function, given, tensors, self._memory)
        found = self._recorded[form].replay(tensors)
        return _filled(found, iter(_copies(_listed(found)))) if self.fresh else found


class _Recording:
    """One graph with its arguments and results; what it needs in between lies in `memory`, as that of others does."""

    def __init__(self, function: Callable[..., Any], given: Any, tensors: list[torch.Tensor], memory: Any) -> None:
        self._inputs = [tensor.clone() for tensor in tensors]
        self._last: list[torch.Tensor | None] = list(tensors)
        own = _filled(given, iter(self._inputs))
        self._graph = torch.cuda.CUDAGraph()
        # Other threads may allocate meanwhile: only calls of this one are held to what can be recorded.
        recording = torch.cuda.graph(self._graph, pool=memory, capture_error_mode="thread_local")
        with _nothing_collected(), recording:
            self._found = function(*own)

    def replay(self, tensors: list[torch.Tensor]) -> Any:
        """Results for arguments; what is the very tensor of the call before is not copied again."""
        moved = [n for n, (new, last) in enumerate(zip(tensors, self._last, strict=True)) if new is not last]
        _copy([self._inputs[n] for n in moved], [tensors[n] for n in moved])
        self._last = list(tensors)
        self._graph.replay()
        return self._found


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Garbage goes before: a graph that is destroyed while another is recorded would spoil that one."""
    gc.collect()
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _form(value: Any, tensors: list[torch.Tensor]) -> Hashable:
    """What is equal for calls of one form; the tensors in `value` are appended to `tensors`."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return (value.shape, value.dtype)
    parts = _parts(value)
    if parts is None:
        return value if isinstance(value, Hashable) else id(value)
    return (type(value), tuple((name, _form(part, tensors)) for name, part in parts.items()))


def _listed(value: Any) -> list[torch.Tensor]:
    tensors: list[torch.Tensor] = []
    _form(value, tensors)
    return tensors


def _filled(value: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """`value` with its tensors in order replaced."""
    if isinstance(value, torch.Tensor):
        return next(tensors)
    parts = _parts(value)
    if parts is None:
        return value
    made = {name: _filled(part, tensors) for name, part in parts.items()}
    if isinstance(value, Mapping):
        return made
    kind: Callable[..., Any] = type(value)
    if dataclasses.is_dataclass(value):
        return kind(**made)
    return kind(*made.values()) if hasattr(value, "_fields") else kind(made.values())


def _parts(value: Any) -> dict[Any, Any] | None:
    """What `value` is made of, None where it is a whole."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple | list):
        return dict(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _copies(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    made = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in tensors]
    _copy(made, tensors)
    return made


def _copy(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    """Copy tensor by tensor, those of a type in one launch."""
    groups: dict[torch.dtype, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
    for target, source in zip(targets, sources, strict=True):
        group = groups.setdefault(target.dtype, ([], []))
        group[0].append(target)
        group[1].append(source)
    for into, of in groups.values():
        torch._foreach_copy_(into, of)
