"""Clocks for training steps: rates, the shares of a step, how busy a GPU is, and memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from data.prefetch import Prefetched
from hierarchy.trainer import Trainer


def wait(device: torch.device) -> None:
    """Until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def step_seconds(step: Callable[[int, Any], Any], trainer: Trainer, first: int, steps: int) -> float:
    """Seconds of `steps` steps from number `first` on, their inputs drawn ahead by the thread of the trainer."""
    drawn = (trainer.draw(number) for number in range(first, first + steps))
    with Prefetched(drawn, trainer.config.prefetch) as given:
        step(first, next(given))
        wait(trainer.device)
        start = time.perf_counter()
        for number, each in zip(range(first + 1, first + steps), given, strict=True):
            step(number, each)
        wait(trainer.device)
        return (time.perf_counter() - start) * steps / (steps - 1)


def profile(trainer: Trainer, first: int, steps: int) -> dict[str, float]:
    """Seconds of the parts of `steps` steps, one after the other and each waited for.

    Sampling; backward; optimizer; forward is the rest: student, teacher, the teacher's average and primitives. Losses
    are launched kernel by kernel: what is recorded has no parts.
    """
    spent = dict.fromkeys(("sampling", "backward", "optimizer", "step"), 0.0)

    def watched(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any, **named: Any) -> Any:
            wait(trainer.device)
            start = time.perf_counter()
            result = call(*given, **named)
            wait(trainer.device)
            spent[name] += time.perf_counter() - start
            return result

        return timed

    def plain(*_: Any) -> Callable[..., Any]:
        return trainer._learn

    with (
        _patched(trainer, "_captured", plain),
        _patched(trainer, "_gradients", watched, "backward"),
        _patched(trainer.optimizer, "step", watched, "optimizer"),
    ):
        draw, step = watched("sampling", trainer.draw), watched("step", trainer.step)
        for number in range(first, first + steps):
            step(number, draw(number))
    spent["forward"] = spent.pop("step") - spent["backward"] - spent["optimizer"]
    return spent


@contextmanager
def _patched(owner: Any, name: str, watched: Callable[..., Any], label: str = "") -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, watched(label or name, before))
    try:
        yield
    finally:
        setattr(owner, name, before)


def busy_share(trainer: Trainer, first: int, steps: int) -> float:
    """Share of the wall time of `steps` steps in which at least one kernel or copy ran on the GPU."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, acc_events=True) as profiler:
        seconds = step_seconds(trainer.step, trainer, first, steps)
    spans = sorted(
        (event.time_range.start, event.time_range.end)
        for event in profiler.events()
        if event.device_type == torch.autograd.DeviceType.CUDA and not _is_a_label(event)
    )
    busy, reached = 0.0, 0.0
    for start, end in spans:
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return busy / 1e6 / seconds


def _is_a_label(event: Any) -> bool:
    """A named stretch of the host's, which the profiler draws on the GPU too: nothing need run there meanwhile."""
    return bool(getattr(event, "is_user_annotation", False)) or event.name.startswith("Optimizer.")


def peak_memory(trainer: Trainer, step: int) -> tuple[int, int]:
    """Bytes on the GPU before a step (graph, content, weights), and what the step takes beside them at most."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    trainer.step(step, trainer.draw(step))
    torch.cuda.synchronize()
    return before, torch.cuda.max_memory_allocated() - before
