"""Item-based collaborative filtering: what is bought by those who bought what the user bought.

Sarwar et al. (2001); exponents on the popularity of both products as in Deshpande & Karypis (2004) and RP3beta
(Paudel et al., 2016); occasions instead of whole users as in the next-basket literature.
"""

from __future__ import annotations

from copy import copy

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hierarchy.purchases import History


class ItemKnn:
    """score(u, i) = sum over j of profile(u, j) * C(j, i) / (n_j ** source * n_i ** target).

    C(j, i) counts the occasions on which both were bought, n the occasions of one; an occasion is a user's purchases
    within `window` days, and the profile halves every `half_life` days. C is never formed: its factors, occasions by
    products, are applied one after the other, in O(purchases) a user.
    """

    def __init__(self, history: History, source: float, target: float, window: float, half_life: float | None) -> None:
        occasions = history.occasions(window)
        times = np.maximum(np.asarray(occasions.sum(axis=0)).ravel(), 1.0)
        self._half_life, self._scale = half_life, times**-source
        self._profile = _scaled(history.matrix(half_life), self._scale)
        self._to_occasions = sparse.csr_array(occasions.T)
        self._to_products = sparse.csr_array(_scaled(occasions, times**-target).T)
        # What shares no occasion with the user's history is left to popularity, far below everything else.
        self._rest = (1e-6 * times / times.max(initial=1.0)).astype(np.float32)

    def grown(self, history: History) -> ItemKnn:
        """The same counts for what users had by a later date."""
        later = copy(self)
        later._profile = _scaled(history.matrix(self._half_life), self._scale)
        return later

    def scores(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Scores (B, products) of users (B,)."""
        alike = (self._profile[users] @ self._to_occasions).toarray()
        return np.asarray((self._to_products @ alike.T).T + self._rest, np.float32)


def _scaled(matrix: sparse.csr_array, columns: NDArray[np.float64]) -> sparse.csr_array:
    scaled = matrix.copy()
    scaled.data = (matrix.data * columns[matrix.indices]).astype(np.float32)
    return scaled
