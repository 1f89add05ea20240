"""Counts and ages of a row as half-octave steps, so that linear models and embedding tables can bend them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

NUM_STEPS = 32
"""Steps of each number: step s holds 1 + x in [2^(s/2), 2^((s+1)/2)); the last holds all above."""

NUMBERS = ("history", "popularity", "pair", "visit_age", "pair_age")
"""Earlier events of the user, of the product, of the two together; days since the last of the user, of the pair."""

CROSSES = (("pair", "pair_age"), ("pair", "history"), ("pair", "popularity"))
"""Pairs of numbers that are also stepped together: how often and how long ago a user bought this very product."""


def steps(row: Mapping[str, NDArray]) -> dict[str, NDArray[np.int64]]:
    """Step int64 (n,) of each of `NUMBERS` from columns of `reader.COLUMNS`; an absent age is step 0."""
    values = {
        "history": row["history_end"] - row["history_start"],
        "popularity": row["product_events"],
        "pair": row["pair_events"],
        "visit_age": row["visit_age"] + 1.0,
        "pair_age": row["pair_age"] + 1.0,
    }
    return {name: stepped(value) for name, value in values.items()}


def crossed_steps(row: Mapping[str, NDArray]) -> NDArray[np.int64]:
    """int64 (n, NUMBERS + CROSSES): rows of one table of `table_size()` rows that keeps all of them apart."""
    single = steps(row)
    columns = [single[name] + NUM_STEPS * number for number, name in enumerate(NUMBERS)]
    base = NUM_STEPS * len(NUMBERS)
    for number, (one, other) in enumerate(CROSSES):
        columns.append(base + NUM_STEPS**2 * number + NUM_STEPS * single[one] + single[other])
    return np.stack(columns, axis=1)


def table_size() -> int:
    """Rows of the table that `crossed_steps` points into."""
    return NUM_STEPS * len(NUMBERS) + NUM_STEPS**2 * len(CROSSES)


def stepped(value: NDArray) -> NDArray[np.int64]:
    """The half-octave step of each value; 0 for what is 0 or less."""
    step: NDArray[np.int64] = np.floor(2 * np.log2(1.0 + np.maximum(value, 0))).astype(np.int64)
    return np.minimum(step, NUM_STEPS - 1)
