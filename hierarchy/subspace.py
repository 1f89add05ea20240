"""The leading singular vectors of a large sparse matrix, by randomised subspace iteration.

Halko, Martinsson & Tropp (2011), "Finding structure with randomness", algorithm 4.4. The same matrix, dimension and
seed give the same bits on one CPU; signs are fixed, so that a refit does not flip axes at random.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import linalg, sparse

from data.errors import UsageError

_SPARE = 16  # columns beyond those asked for: the last ones of a random subspace converge slowest
_RANK = 1e-5  # of the largest singular value: below it is rounding


Dense = NDArray[np.float32]


class Factors(NamedTuple):
    """matrix ~ left * values @ right.T: left float32 (m, d), values float32 (d,) falling, right float32 (n, d)."""

    left: NDArray[np.float32]
    values: NDArray[np.float32]
    right: NDArray[np.float32]


def truncated_svd(
    matrix: sparse.csr_array, dim: int, seed: int, iterations: int = 4, device: torch.device | str = "cpu"
) -> Factors:
    """The `dim` largest singular triplets of float32 `matrix` (m, n); fewer where its rank is less.

    Four iterations are enough for retrieval (more precision changed no figure that was measured). Time: iterations x
    (4 nnz d + 2 n d^2) operations, on `device`; memory: about three dense float32 (m + n, d) there. Raises UsageError
    for dim < 1.
    """
    if dim < 1:
        raise UsageError(f"expected at least 1 dimension, got {dim}")
    width = min(dim + _SPARE, *matrix.shape)
    start = np.random.default_rng(seed).standard_normal((matrix.shape[1], width), np.float32)
    on_host = torch.device(device).type == "cpu"
    basis, left, values, turn = (_factors if on_host else partial(_device_factors, device=device))(
        matrix, start, iterations
    )
    # What is zero but for rounding has directions that mean nothing.
    kept = slice(0, min(dim, int((values > _RANK * values[:1]).sum())))
    right = basis @ turn[kept].T
    sign = np.where(right[np.abs(right).argmax(axis=0), np.arange(right.shape[1])] < 0, -1.0, 1.0).astype(np.float32)
    return Factors(left[:, kept] * sign, values[kept], right * sign)


def _factors(matrix: sparse.csr_array, start: Dense, iterations: int) -> tuple[Dense, Dense, Dense, Dense]:
    """Basis (n, w) of the subspace, and the singular triplets of matrix @ basis: (m, w), (w,), (w, w)."""
    back = sparse.csr_array(matrix.T)
    basis = _orthonormal(start)
    for _ in range(iterations):
        basis = _orthonormal(back @ (matrix @ basis))
    left, values, turn = linalg.svd(matrix @ basis, full_matrices=False, overwrite_a=True, check_finite=False)
    return basis, left, values, turn


def _device_factors(
    matrix: sparse.csr_array, start: Dense, iterations: int, device: torch.device | str
) -> tuple[Dense, Dense, Dense, Dense]:
    """The same on another device."""
    there, back = (_on_device(each, device) for each in (matrix, sparse.csr_array(matrix.T)))
    basis = torch.linalg.qr(torch.from_numpy(start).to(device))[0]
    for _ in range(iterations):
        basis = torch.linalg.qr(back @ (there @ basis))[0]
    # Of a tall matrix the small factor is enough.
    tall, small = torch.linalg.qr(there @ basis)
    left, values, turn = torch.linalg.svd(small, full_matrices=False)
    basis, left, values, turn = (each.cpu().numpy() for each in (basis, tall @ left, values, turn))
    return basis, left, values, turn


def _on_device(matrix: sparse.csr_array, device: torch.device | str) -> torch.Tensor:
    rows, columns = (torch.from_numpy(part.astype(np.int64)) for part in (matrix.indptr, matrix.indices))
    values = torch.from_numpy(np.asarray(matrix.data, np.float32))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
        return torch.sparse_csr_tensor(rows, columns, values, size=matrix.shape, device=device, check_invariants=False)


def _orthonormal(columns: NDArray[np.float32]) -> NDArray[np.float32]:
    found: NDArray[np.float32] = linalg.qr(columns, mode="economic", overwrite_a=True, check_finite=False)[0]
    return found
