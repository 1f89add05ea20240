from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.visible_count import api, reference

pytest.importorskip("triton")
from kernels.visible_count import triton_impl

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
"""Where Triton's kernel runs: interpreted on the CPU, else compiled."""


def by_triton(*given: torch.Tensor) -> torch.Tensor:
    return triton_impl.visible_count(*(each.to(DEVICE) for each in given)).cpu()


IMPLEMENTATIONS = [reference.visible_count, by_triton]


def csr_of(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    rowptr = torch.tensor([0, *np.cumsum([len(row) for row in rows])], dtype=torch.int64)
    return rowptr, torch.tensor([seen for row in rows for seen in sorted(row)], dtype=torch.int64)


@pytest.mark.parametrize("visible_count", IMPLEMENTATIONS)
@settings(max_examples=30, deadline=None)
@given(data=st.data(), rows=st.lists(st.lists(st.integers(-5, 20), max_size=200), max_size=6))
def test_counts_are_those_of_counting(visible_count, data, rows):
    count = data.draw(st.integers(0, 300))
    asked = np.random.default_rng(count).integers(-2, len(rows) + 2, count)
    times = np.random.default_rng(count + 1).integers(-8, 24, count)
    found = visible_count(*csr_of(rows), torch.from_numpy(asked), torch.from_numpy(times))
    inside = [rows[row] if 0 <= row < len(rows) else [] for row in asked]
    assert found.tolist() == [sum(seen <= time for seen in row) for row, time in zip(inside, times, strict=True)]


@pytest.mark.parametrize("visible_count", IMPLEMENTATIONS)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (5,), (2, 3, 4)])
def test_the_result_has_the_shape_of_the_rows(visible_count, shape):
    rowptr, visible_from = csr_of([[1, 2, 3]])
    found = visible_count(rowptr, visible_from, torch.zeros(shape, dtype=torch.int64), torch.full(shape, 2))
    assert found.shape == shape
    assert found.dtype == torch.int64
    assert (found == 2).all()


def test_a_hub_among_short_rows():
    hub = torch.arange(1 << 20)
    rowptr = torch.tensor([0, 2, 2 + len(hub), 5 + len(hub)])
    visible_from = torch.cat([torch.tensor([3, 9]), hub, torch.tensor([1, 1, 1])])
    rows = torch.tensor([0, 1, 1, 1, 2] + [0] * 20)
    times = torch.tensor([8, -1, 777_777, 1 << 20, 1] + [2] * 20)
    found = reference.visible_count(rowptr, visible_from, rows, times)
    assert found.tolist() == [1, 0, 777_778, 1 << 20, 3] + [0] * 20


def test_views_that_are_not_contiguous_are_read_rightly():
    rowptr, visible_from = csr_of([[1, 2], [5]])
    rows, times = torch.tensor([[0], [1]]).expand(2, 3), torch.tensor([[0, 1, 5]]).expand(2, 3)
    for visible_count in (*IMPLEMENTATIONS, api.visible_count):
        assert visible_count(rowptr, visible_from, rows, times).tolist() == [[0, 1, 2], [0, 0, 1]]


def test_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match="one time a row"):
        api.visible_count(*csr_of([[1]]), torch.zeros(2, dtype=torch.int64), torch.zeros(3, dtype=torch.int64))


def test_the_operation_is_there_without_triton():
    script = "import sys; sys.modules['triton'] = None; import kernels.visible_count.api, graph.sampler"
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_device_counts_as_the_host():
    rng = np.random.default_rng(0)
    rowptr, visible_from = csr_of([rng.integers(0, 10**6, size).tolist() for size in (0, 1, 100_000, 7)])
    rows, times = torch.from_numpy(rng.integers(-1, 5, 10_000)), torch.from_numpy(rng.integers(0, 10**6, 10_000))
    given = [array.cuda() for array in (rowptr, visible_from, rows, times)]
    assert torch.equal(api.visible_count(*given).cpu(), reference.visible_count(rowptr, visible_from, rows, times))
