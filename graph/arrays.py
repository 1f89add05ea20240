"""Arrays on disk read and written piece by piece with plain file calls: what is mapped would count as memory in use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from data.errors import BadDataError


def save(path: Path, array: NDArray[Any]) -> None:
    """Write a one-dimensional array as .npy, making its folder."""
    with writer(path, array.dtype, len(array)) as append:
        append(array)


@contextmanager
def writer(path: Path, dtype: Any, length: int) -> Iterator[Any]:
    """Yield a function that appends pieces of a one-dimensional .npy of `length` values; equal bytes for any pieces.

    Raises BadDataError when other than `length` values came.
    """
    kind, count = np.dtype(dtype), 0

    def append(piece: NDArray[Any]) -> None:
        nonlocal count
        np.ascontiguousarray(piece, kind).tofile(stream)
        count += len(piece)

    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as stream:
        header = {"descr": npy.dtype_to_descr(kind), "fortran_order": False, "shape": (length,)}
        npy.write_array_header_1_0(stream, header)
        yield append
    if count != length:
        raise BadDataError(f"{path.name}: expected {length} values, got {count}")


class ArrayFile:
    """A one-dimensional .npy file; `read` gives any stretch of it in new memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with open(path, "rb") as stream:
            npy.read_magic(stream)
            (self.length,), _, self.dtype = npy.read_array_header_1_0(stream)
            self._start = stream.tell()

    def read(self, first: int = 0, last: int | None = None) -> NDArray[Any]:
        """Values first .. last - 1 (to the end without `last`)."""
        count = (self.length if last is None else last) - first
        return np.fromfile(self.path, self.dtype, count, offset=self._start + first * self.dtype.itemsize)


def load(path: Path) -> NDArray[Any]:
    """A whole one-dimensional .npy file in new memory."""
    return ArrayFile(path).read()
