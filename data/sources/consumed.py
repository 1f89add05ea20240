"""Which files an earlier ingest has read, by content: written into its artifact, so that the next one need not look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from data.artifacts import sha256_file
from data.window import Window

FILE = "files.json"


def digest(path: Path) -> str:
    """sha256 of a file, computed once a process for each state of the file."""
    state = path.stat()
    return _digest(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=4096)
def _digest(path: Path, size: int, changed: int) -> str:
    return sha256_file(path)


@dataclass(frozen=True)
class Source:
    """One file to read. `consumed`: an earlier ingest read it, and took what was readable then."""

    path: Path
    label: str
    consumed: bool


@dataclass
class Consumed:
    """By table and sha256 of its files: when the last of their rows became readable [us], None if unknown."""

    window: Window
    earlier: Mapping[str, Mapping[str, int | None]]
    read: dict[str, dict[str, int | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, window: Window) -> Consumed:
        """What the window's previous artifact had read."""
        previous = window.previous
        return cls(window, previous.json(FILE) if previous is not None and previous.has(FILE) else {})

    def choose(self, table: str, paths: Sequence[Path], root: Path) -> list[Source]:
        """The files to read for a table: all but those of events that have nothing new to tell."""
        done = self.earlier.get(table, {})
        chosen = []
        for path in paths:
            sha = digest(path)
            if not (table == "events" and sha in done and self._is_over(done[sha])):
                label = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
                chosen.append(Source(path, label, sha in done))
        return chosen

    def note(self, table: str, sources: Sequence[Source], latest: Mapping[str, int | None]) -> None:
        """Record files as read; `latest` gives by label when the last of a file's rows became readable [us]."""
        self.read[table] = {digest(source.path): latest.get(source.label) for source in sources}

    def as_json(self) -> dict[str, Any]:
        """What the next ingest is to know: the files of this one and of all before it."""
        tables = {*self.earlier, *self.read}
        return {table: {**self.earlier.get(table, {}), **self.read.get(table, {})} for table in tables}

    def _is_over(self, latest: int | None) -> bool:
        return latest is None or (self.window.since is not None and latest <= self.window.since)
