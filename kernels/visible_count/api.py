"""How many leading edges of each row are visible: a binary search in many rows of a CSR at once."""

from __future__ import annotations

import importlib.util
from functools import cache

from torch import Tensor

from kernels.visible_count import reference


def visible_count(rowptr: Tensor, visible_from: Tensor, rows: Tensor, times: Tensor) -> Tensor:
    """int64, shaped as `rows`: the edges of each row with visible_from <= its time.

    rowptr int64 (n + 1,); visible_from int64 (E,), never decreasing within a row; rows and times int64 of equal shape.
    A row outside [0, n) has no edges. On CUDA one Triton kernel where triton is installed, else the torch reference.
    Raises ValueError for shapes that differ.
    """
    if rows.shape != times.shape:
        raise ValueError(f"expected one time a row, got {tuple(rows.shape)} rows and {tuple(times.shape)} times")
    if rows.is_cuda and _has_triton():
        from kernels.visible_count import triton_impl

        return triton_impl.visible_count(rowptr, visible_from, rows, times)
    return reference.visible_count(rowptr, visible_from, rows, times)


@cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
