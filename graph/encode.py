"""Scanned events to chunks of internal ids; a day larger than a chunk is dealt out by user."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graph.arrays import ArrayFile, load, save
from graph.chunks import COLUMNS, Chunk
from graph.scan import ENDS

_OTHERS = ("kind", "time", "visible_from", "weight")


def encode(scanned: Path, numbers: Path, days: Sequence[int]) -> Chunk:
    """The chunk of the events in folder `scanned` (graph.scan.scan), by the internal ids in folder `numbers`:
    <end>.npy int (n,) holds those of the ids in <end>.parquet."""
    columns: dict[str, Any] = {name: load(scanned / f"{name}.npy") for name in _OTHERS}
    for end in ENDS:
        ids = load(numbers / f"{end}.npy")
        columns[end] = np.append(ids, ids.dtype.type(-1))[load(scanned / f"{end}.npy")]
    return Chunk(**columns, first_day=days[0], last_day=days[-1])


def deal(chunk: Chunk, hands: int, folder: Path) -> list[int]:
    """Write a chunk to `folder` with its users dealt out to `hands` parts, and return where each part begins and ends.

    Each part keeps the order in time.
    """
    hand = chunk.user % hands
    order = np.argsort(hand, kind="stable")
    for name in COLUMNS:
        save(folder / f"{name}.npy", getattr(chunk, name)[order])
    bounds: list[int] = np.searchsorted(hand[order], np.arange(hands + 1)).tolist()
    return bounds


def collect(dealt: Sequence[tuple[Path, list[int]]], hand: int, day: int) -> Chunk:
    """The chunk of one `hand` of a large `day` from all its dealt pieces (folder, bounds), in time order."""
    columns: dict[str, NDArray[Any]] = {}
    for name in COLUMNS:
        stretches = [ArrayFile(folder / f"{name}.npy").read(bounds[hand], bounds[hand + 1]) for folder, bounds in dealt]
        columns[name] = np.concatenate(stretches)
    chunk = Chunk(**columns, first_day=day, last_day=day)
    return chunk.take(np.lexsort((chunk.time, chunk.visible_from)))
