"""A transition graph walked from the last one or two things a user had, with content for what it does not reach.

After the training-free heuristic of arXiv 2605.07125 (TGH: last items, transition graph, text similarity). Written from
its abstract, so that the details are ours.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hierarchy.directional import DirectionalSettings, transitions
from hierarchy.purchases import History


class TransitionGraph:
    """score(u, i) = sum over the `last` newest j of decay ** recency * (P + hop P P + content * cosine)(j, i).

    P is the row-stochastic table of direct transitions within `window` occasions, in both directions if `both`.
    """

    def __init__(
        self,
        known: History,
        content: NDArray[np.float32] | None = None,
        last: int = 2,
        window: int = 1,
        both: bool = False,
        hop: float = 0.3,
        similarity: float = 0.1,
        decay: float = 0.5,
    ) -> None:
        """`content` float32 (products, D), unit-norm or zero; None leaves the similarity out."""
        settings = DirectionalSettings(window=window, decay=decay, rho=1.0 if both else 0.0, row_power=1.0)
        self._step = transitions(known, settings)
        self._last, self._decay, self._hop = last, decay, np.float32(hop)
        self._similarity, self._content = np.float32(similarity), content
        self._profile, self._rest = _newest(known, last, decay), known.fallback()

    def grown(self, history: History) -> TransitionGraph:
        """The same graph for what users had by a later date."""
        later = copy(self)
        later._profile = _newest(history, self._last, self._decay)
        return later

    def scores(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Scores (B, products) of users (B,)."""
        start = self._profile[users]
        once = start @ self._step
        found = np.asarray((once + self._hop * (once @ self._step)).toarray() + self._rest, np.float32)
        if self._content is not None:
            found += self._similarity * ((start @ self._content) @ self._content.T)
        return found


def _newest(history: History, last: int, decay: float) -> sparse.csr_array:
    """Profile of the `last` newest occasions alone."""
    kept = history.recency() < last
    weight = None if history.weight is None else history.weight[kept]
    newest = replace(
        history, user=history.user[kept], product=history.product[kept], age=history.age[kept], weight=weight
    )
    return newest.profile(decay)
