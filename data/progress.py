"""Progress of long steps: a rich bar on a terminal, plain lines when piped, with rows/s and time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO


@dataclass
class Step:
    """One running step. `advance` is cheap: a line is printed at most every `every_s` seconds."""

    name: str
    total: int | None
    unit: str
    stream: TextIO
    every_s: float
    done: int = 0
    started: float = field(default_factory=time.monotonic)
    _printed: float = field(default_factory=time.monotonic)

    def advance(self, count: int = 1) -> None:
        """Count `count` more units as done."""
        self.done += count
        now = time.monotonic()
        if now - self._printed >= self.every_s:
            self._printed = now
            print(f"  {self.line(now)}", file=self.stream, flush=True)

    def line(self, now: float) -> str:
        """`name done/total unit, rate, time left` at monotonic time `now` [s]."""
        rate = self.done / max(now - self.started, 1e-9)
        text = f"{self.name}: {self.done:,}" + (f"/{self.total:,}" if self.total else "") + f" {self.unit}"
        text += f", {rate:,.0f} {self.unit}/s" if rate >= 10 else f", {rate:.2g} {self.unit}/s"
        if self.total and rate > 0:
            text += f", {max(self.total - self.done, 0) / rate:,.0f} s left"
        return text


class _BarStep(Step):
    def advance(self, count: int = 1) -> None:
        self.done += count
        self.bar.update(self.bar_id, advance=count)  # type: ignore[attr-defined]


class Progress:
    """Makes steps. `stream=None` silences it (the default, for library use and tests)."""

    def __init__(self, stream: TextIO | None = None, every_s: float = 5.0) -> None:
        self.stream = stream
        self.every_s = every_s

    def say(self, text: str) -> None:
        """One line of news, shown as it is."""
        if self.stream is not None:
            print(text, file=self.stream, flush=True)

    @contextmanager
    def step(self, name: str, total: int | None = None, unit: str = "rows") -> Iterator[Step]:
        """A step of `total` units (None when unknown); yields the object to `advance`."""
        stream = self.stream
        if stream is None:
            yield Step(name, total, unit, sys.stderr, float("inf"))
        elif stream.isatty():
            yield from _bar_step(name, total, unit, stream)
        else:
            yield Step(name, total, unit, stream, self.every_s)


def _bar_step(name: str, total: int | None, unit: str, stream: TextIO) -> Iterator[Step]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
    with Bars(*columns, TimeRemainingColumn(), console=Console(file=stream), transient=True) as bars:
        step = _BarStep(name, total, unit, stream, float("inf"))
        step.bar, step.bar_id = bars, bars.add_task(name, total=total)  # type: ignore[attr-defined]
        yield step
