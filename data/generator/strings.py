"""Ids of fixed width built from numbers without a Python loop: a letter and groups of four digits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data.generator.config import CANARIES

_FOUR = np.frombuffer("".join(f"{number:04d}" for number in range(10_000)).encode(), "<u4")


def labels(letter: str, *groups: NDArray[Any] | int, valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """Strings `letter` + four digits for each of `groups` (n,) in [0, 10^4); null where not `valid` (n,)."""
    return _wrap(_digits(letter, *groups), valid)


def entities(letter: str, numbers: NDArray[Any], count: int) -> pa.Array:
    """Ids of entities (n,): `letter` and eight digits, or canary<letter>NN for numbers from `count` on; -1 is null."""
    valid = numbers >= 0
    ids = np.where(valid, numbers, 0)
    packed = _digits(letter, ids // 10_000, ids % 10_000)
    planted = numbers >= count
    if planted.any():
        packed[planted] = _canary_ids(letter)[numbers[planted] - count].view(packed.dtype)
    return _wrap(packed, None if valid.all() else valid)


def _canary_ids(letter: str) -> NDArray[Any]:
    return np.array([f"canary{letter}{index:02d}".encode() for index in range(CANARIES)], "S9")


def _digits(letter: str, *groups: NDArray[Any] | int) -> NDArray[Any]:
    length = next(len(group) for group in groups if not isinstance(group, int))
    packed = np.empty(length, [("letter", "S1"), *((f"g{index}", "<u4") for index in range(len(groups)))])
    packed["letter"] = letter.encode()
    for index, group in enumerate(groups):
        packed[f"g{index}"] = _FOUR[group]
    return packed


def _wrap(packed: NDArray[Any], valid: NDArray[np.bool_] | None) -> pa.Array:
    offsets = np.arange(len(packed) + 1, dtype=np.int32) * np.int32(packed.dtype.itemsize)
    mask = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.StringArray.from_buffers(len(packed), pa.py_buffer(offsets), pa.py_buffer(packed), mask)
