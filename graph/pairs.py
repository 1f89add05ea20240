"""Counts of what occurs together: additive, exact and sorted by pair, so that any split adds up to equal bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graph.arrays import ArrayFile, save

WEIGHT_UNIT = 1 << 20
"""Weights are integers in this unit: sums of integers do not depend on their order."""

SUPPORT_UNIT = 16
"""Support is an integer in sixteenths of a user-day, so that it can decay."""

COLUMNS = {"key": np.int64, "support": np.int32, "weight": np.int64, "users": np.uint64}
_LOW = (1 << 32) - 1
_STRETCH = 1 << 16


@dataclass(frozen=True)
class Pairs:
    """n distinct pairs of nodes, sorted by key = first << 32 | second.

    key int64, support int32 [1/16 user-days], weight int64 [2**-20], users uint64 (n,): a bit for each of 64 hash
    classes of the users behind a pair. As many bits as are set, so many different users at the least, however often
    one of them comes; the expected number follows from it (linear counting: Whang et al., 1990).
    """

    key: NDArray[np.int64]
    support: NDArray[np.int32]
    weight: NDArray[np.int64]
    users: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.key)

    @classmethod
    def empty(cls) -> Pairs:
        """No pairs."""
        return cls(**{name: np.zeros(0, kind) for name, kind in COLUMNS.items()})

    def save(self, folder: Path) -> None:
        """Write one .npy a column below `folder`: `PairsFile` reads them."""
        for name, values in self.columns().items():
            save(folder / f"{name}.npy", values)

    @property
    def first(self) -> NDArray[np.int64]:
        """First node of each pair, int64 (n,)."""
        return self.key >> 32

    @property
    def second(self) -> NDArray[np.int64]:
        """Second node of each pair, int64 (n,)."""
        return self.key & _LOW

    def columns(self) -> dict[str, NDArray[Any]]:
        """The arrays by name."""
        return {name: getattr(self, name) for name in COLUMNS}

    def take(self, rows: Any) -> Pairs:
        """The pairs at `rows` (a slice, positions or a mask, any that keep the order)."""
        return Pairs(*(np.asarray(getattr(self, name)[rows]) for name in COLUMNS))

    def between(self, low: int, high: int) -> Pairs:
        """Those whose first node is in [low, high)."""
        start, end = np.searchsorted(self.key, np.array([low, high], np.int64) << 32)
        return self.take(slice(int(start), int(end)))

    def blocks(self, rows: int = 1 << 20) -> Iterator[Pairs]:
        """All of them, at most `rows` at a time."""
        for start in range(0, len(self), rows):
            yield self.take(slice(start, start + rows))


class PairsFile:
    """Pairs saved in `folder`, read a stretch at a time: mapped files would count as memory in use."""

    def __init__(self, folder: Path) -> None:
        self._files = {name: ArrayFile(folder / f"{name}.npy") for name in COLUMNS}
        self._start, self._length = 0, self._files["key"].length
        self._marks: NDArray[np.int64] | None = None  # the key of every _STRETCH-th pair, once asked for

    def part(self, start: int, stop: int) -> PairsFile:
        """Those from `start` to before `stop`, which must be sorted; no reading yet."""
        part = copy(self)
        part._start, part._length, part._marks = self._start + start, stop - start, None
        return part

    def __len__(self) -> int:
        return self._length

    def between(self, low: int, high: int) -> Pairs:
        """Those whose first node is in [low, high)."""
        if self._marks is None:
            places = range(self._start, self._start + len(self), _STRETCH)
            self._marks = np.array([self._files["key"].read(at, at + 1)[0] for at in places], np.int64)
        first, last = np.searchsorted(self._marks, np.array([low, high], np.int64) << 32).tolist()
        return self._read(max(first - 1, 0) * _STRETCH, last * _STRETCH).between(low, high)

    def blocks(self, rows: int = 1 << 20) -> Iterator[Pairs]:
        """All of them, at most `rows` at a time."""
        for start in range(0, len(self), rows):
            yield self._read(start, start + rows)

    def _read(self, start: int, end: int) -> Pairs:
        first, last = self._start + start, self._start + min(end, len(self))
        return Pairs(**{name: file.read(first, last) for name, file in self._files.items()})


def turned(pairs: Pairs | PairsFile, low: int, high: int) -> Iterator[Pairs]:
    """Pairs whose second node is in [low, high), turned round, in pieces that are not sorted: for `added`."""
    for block in pairs.blocks():
        part = block.take((block.second >= low) & (block.second < high))
        yield Pairs(part.second << 32 | part.first, part.support, part.weight, part.users)


def added(parts: Sequence[Pairs]) -> Pairs:
    """The sum of counts whose pairs may come in any order and more than once; time and memory of one sort of them."""
    whole = {name: np.concatenate([getattr(part, name) for part in (Pairs.empty(), *parts)]) for name in COLUMNS}
    if not len(whole["key"]):
        return Pairs.empty()
    order = np.argsort(whole["key"])
    key = whole["key"][order]
    start = np.flatnonzero(np.diff(key, prepend=-1))
    return Pairs(
        key=key[start],
        support=np.add.reduceat(whole["support"][order], start, dtype=np.int32),
        weight=np.add.reduceat(whole["weight"][order], start),
        users=np.bitwise_or.reduceat(whole["users"][order], start),
    )


class GrowingFile:
    """A .npy file of one dimension written piece by piece, its length known at the end: byte for byte numpy's own."""

    def __init__(self, path: Path, kind: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._kind, self._rows, self._stream = np.dtype(kind), 0, open(path, "wb")  # noqa: SIM115 (closed by `close`)
        self._header()

    def append(self, values: NDArray[Any]) -> None:
        """Write more values, of the file's type."""
        np.ascontiguousarray(values, self._kind).tofile(self._stream)
        self._rows += len(values)

    def close(self) -> None:
        """Write the length. numpy leaves room in a header for any length of the first axis."""
        self._stream.seek(0)
        self._header()
        self._stream.close()

    def _header(self) -> None:
        described = {"descr": np.lib.format.dtype_to_descr(self._kind), "fortran_order": False, "shape": (self._rows,)}
        np.lib.format.write_array_header_1_0(self._stream, described)


class PairsWriter:
    """Pairs written to `folder` piece by piece; `PairsFile` reads them."""

    def __init__(self, folder: Path) -> None:
        self._files = {name: GrowingFile(folder / f"{name}.npy", kind) for name, kind in COLUMNS.items()}
        self._rows = 0

    def append(self, pairs: Pairs) -> tuple[int, int]:
        """Write more pairs; returns where they start and end."""
        for name, values in pairs.columns().items():
            self._files[name].append(values)
        self._rows += len(pairs)
        return self._rows - len(pairs), self._rows

    def close(self) -> None:
        """Finish the files."""
        for file in self._files.values():
            file.close()
