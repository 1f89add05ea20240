"""The turn that lays one run's vectors over another's: weighted orthogonal Procrustes (Schönemann, Psychometrika 1966).

Two training runs of one learner agree on angles but not on axes, so vectors compare only after the best rotation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data.errors import BadDataError
from hierarchy.bags import Vectors, one_blas_thread

_BLOCK = 16_384


class Turn(NamedTuple):
    """`matrix` float32 (d, e) with orthonormal columns or rows, for old row vectors (n, d) @ matrix -> (n, e).

    residual: weighted root mean square distance of turned old to new unit vectors, in [0, 2]; cosine: their weighted
    mean cosine. residual ** 2 == 2 - 2 * cosine where d <= e.
    """

    matrix: Vectors
    residual: float
    cosine: float

    def __call__(self, vectors: Vectors) -> Vectors:
        """Old vectors (n, d) in the new space (n, e), of unit length again."""
        with one_blas_thread():
            turned = vectors @ self.matrix
        length = np.linalg.norm(turned, axis=1, keepdims=True)
        return np.asarray(turned / np.maximum(length, 1e-12), np.float32)


def procrustes(old: Vectors, new: Vectors, weight: NDArray[np.float64]) -> Turn:
    """The turn R that minimises sum_i weight_i |old_i R - new_i|^2 over unit rows (n, d) and (n, e), weight (n,).

    R = U V' from the singular values U S V' of old' W new. Reflections are allowed: a mirror changes no cosine. Time
    n d e + d^3; memory one block of rows. Figures are rounded to 6 digits, so that no last bit depends on a machine.
    Raises BadDataError when the two do not pair up, or no row has a weight.
    """
    if not len(old) == len(new) == len(weight):
        raise BadDataError(f"expected as many old vectors as new ones and weights, got {len(old)}, {len(new)}")
    if not weight.sum() > 0:
        raise BadDataError("expected at least one pair of vectors with a weight above 0, got none")
    shares = weight / weight.sum()
    together = np.zeros((old.shape[1], new.shape[1]))
    with one_blas_thread():
        for start in range(0, len(old), _BLOCK):
            part = slice(start, start + _BLOCK)
            together += (old[part] * shares[part, None]).T.astype(np.float64) @ new[part].astype(np.float64)
        left, _, right = np.linalg.svd(together, full_matrices=False)
        turn = Turn(np.asarray(left @ right, np.float32), 0.0, 0.0)
        cosine, squares = 0.0, 0.0
        for start in range(0, len(old), _BLOCK):
            part = slice(start, start + _BLOCK)
            turned = old[part].astype(np.float64) @ (left @ right)
            cosine += float(shares[part] @ (turned * new[part]).sum(axis=1))
            squares += float(shares[part] @ ((turned - new[part]) ** 2).sum(axis=1))
    return turn._replace(residual=round(float(np.sqrt(squares)), 6), cosine=round(cosine, 6))
