"""Items that nobody is told about: the cold half of a set that has an order but no clock.

A seeded tenth of the items, the same as in `tests.benchmarks.encoder_quality.cold`: a number is drawn for each item in
the order of its id as text. Seed 0 is the test; what seed 1 draws of the rest is validation. What was drawn of the
published set is stored here by its sha256, so that the hold-out cannot change unnoticed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from data.errors import BadDataError
from hierarchy.purchases import History

SHARE = 0.1
TEST, VALID = 0, 1
ITEMS = 4344
STORED = {
    TEST: "ceb393039254a57193fc6976c269d27aa7c985afda120207fad63bd29a983294",
    VALID: "1b64137255fd84812212e957968b8329c045fe5ecec937f6d828c875e954336f",
}
"""sha256 of the ids withheld of amazon-scientific, a line each in the order of the text, by seed."""


def withheld(item_ids: Sequence[str], seed: int) -> NDArray[np.bool_]:
    """Items (items,) that `seed` withholds. Raises BadDataError when those of the published set are not the stored."""
    order = np.argsort(np.asarray(item_ids), kind="stable")
    drawn = np.random.default_rng(seed).random(len(order)) < SHARE
    found = np.zeros(len(order), bool)
    found[order] = drawn
    if len(item_ids) == ITEMS and digest(item_ids, found) != STORED[seed]:
        raise BadDataError(
            f"the items withheld by seed {seed} are not those stored: expected sha256 {STORED[seed]}, got "
            f"{digest(item_ids, found)}; take the published files and the generator of numpy that this was drawn with"
        )
    return found


def digest(item_ids: Sequence[str], these: NDArray[np.bool_]) -> str:
    """Hex sha256 of the ids of `these` items (items,)."""
    names = sorted(name for name, held in zip(item_ids, these, strict=True) if held)
    return hashlib.sha256("".join(f"{name}\n" for name in names).encode()).hexdigest()


def without(history: History, items: NDArray[np.bool_]) -> History:
    """A history in which nobody had `items` (items,); ages are again places from a user's newest event."""
    kept = ~items[history.product]
    left = History(
        history.user[kept], history.product[kept], history.age[kept], history.num_users, history.num_products
    )
    return History(left.user, left.product, left.recency().astype(np.float64), left.num_users, left.num_products)
