"""How a user dealt with a candidate's interest before: how often, how lately, how regularly, at every level.

Counts of a user and a product are the strongest features of a repeat purchase and say nothing of a product that is new
or rare. The same counts of a user and the product's primitive do: whoever buys coffee every ten days and did so nine
days ago is about to buy some coffee. (Counts by item and by category are old companions; the levels of the vocabulary
make them available at every granularity, for products without a useful category too.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data.schema import MICROS_PER_DAY
from ranking.asof import AsOf, Ints, at_rows
from ranking.numbers import NUM_STEPS, stepped
from ranking.reader import Examples, Level

NUMBERS = ("count", "age", "share", "pace")
"""Earlier events of the user with the interest; days since the last of them; their part of the user's events; that age
in mean intervals between them, so that 1 means due. Ages and paces are -1 where there are too few events."""

_PER_LEVEL = len(NUMBERS) + 1
_TABLE = NUM_STEPS * len(NUMBERS) + NUM_STEPS**2
_SHARE_SCALE, _PACE_SCALE = 1000.0, 8.0
_LEAST_INTERVAL = 0.5  # days: several products of one visit are no habit of every minute


@dataclass(frozen=True)
class InterestHistory:
    """An as-of index over (user, primitive) for each level, and the times [us] of its events.

    `primitives` int32 (g, slots) are the bags' rows that candidates point into. Time and memory to build: n log n and
    about 30 bytes for each event and level.
    """

    levels: tuple[Level, ...]
    primitives: NDArray[np.int32]
    size: int
    index: tuple[AsOf, ...]
    times: tuple[Ints, ...]

    @classmethod
    def build(cls, examples: Examples, primitives: NDArray[np.int32], of_product: NDArray[np.int64]) -> InterestHistory:
        """Over all events of the histories whose product has tokens: rows `of_product` (products,) of `primitives`.

        An event counts from when it was visible and its product's first tokens were made, whichever is later, so that
        a row sees nothing that was made after its time. A product's interest is its heaviest primitive.
        """
        product = np.asarray(examples.history["product"]).astype(np.int64)
        user = np.repeat(np.arange(len(examples.offsets) - 1), np.diff(examples.offsets))
        row, made = at_rows(of_product, product, -1), examples.tokens_made(product)
        since = np.maximum(np.asarray(examples.history["visible_from"]), made)
        size = 1 + sum(level.size for level in examples.levels)
        index, times = [], []
        for level in examples.levels:
            found = np.where(row >= 0, primitives[row, level.start], -1) if len(primitives) else np.full(len(row), -1)
            there = np.flatnonzero(found >= 0)
            built, order = AsOf.build(user[there] * size + found[there], since[there])
            index.append(built)
            times.append(np.asarray(examples.history["ts"])[there][order])
        return cls(examples.levels, primitives, size, tuple(index), tuple(times))

    def numbers(self, row: Mapping[str, NDArray], pointer: Ints) -> NDArray[np.float32]:
        """(n, 4 L): `NUMBERS` of each level, of rows with columns `row` whose products have bags at `pointer` (n,)."""
        found = [self._level(place, row, pointer) for place in range(len(self.levels))]
        return np.concatenate([np.zeros((len(pointer), 0)), *found], axis=1).astype(np.float32)

    def steps(self, row: Mapping[str, NDArray], pointer: Ints) -> NDArray[np.int64]:
        """(n, 5 L): the same in half-octave steps, then count and age crossed; rows of a table of `table_size`."""
        columns = []
        for place in range(len(self.levels)):
            count, age, share, pace = self._level(place, row, pointer).T
            single = [stepped(count), stepped(age + 1), stepped(_SHARE_SCALE * share), stepped(_PACE_SCALE * pace)]
            base = _TABLE * place
            columns += [base + NUM_STEPS * number + step for number, step in enumerate(single)]
            columns.append(base + NUM_STEPS * len(NUMBERS) + NUM_STEPS * single[0] + single[1])
        return np.stack(columns, axis=1) if columns else np.zeros((len(pointer), 0), np.int64)

    def _level(self, place: int, row: Mapping[str, NDArray], pointer: Ints) -> NDArray[np.float64]:
        """(n, 4) of one level."""
        user, ts = np.asarray(row["user"]).astype(np.int64), np.asarray(row["ts"])
        there = (pointer >= 0) & (user >= 0)
        mine = np.where(there, self.primitives[pointer, self.levels[place].start], -1) if len(self.primitives) else -1
        start, end = self.index[place].spans(np.where(there & (mine >= 0), user * self.size + mine, -1), ts)
        count, times = end - start, self.times[place]
        if not len(times):
            return np.tile(np.array([0.0, -1.0, 0.0, -1.0]), (len(ts), 1))
        last, first = (times[np.clip(at, 0, len(times) - 1)] for at in (end - 1, start))
        age = np.where(count > 0, np.maximum(ts - last, 0) / MICROS_PER_DAY, -1.0)
        interval = np.maximum((last - first) / MICROS_PER_DAY / np.maximum(count - 1, 1), _LEAST_INTERVAL)
        events = np.maximum(np.asarray(row["history_end"]) - row["history_start"], 1)
        pace = np.where(count > 1, age / interval, -1.0)
        return np.stack([count.astype(np.float64), age, count / events, pace], axis=1)


def columns_of(levels: tuple[Level, ...]) -> int:
    """Columns of `InterestHistory.steps`."""
    return _PER_LEVEL * len(levels)


def table_size(levels: tuple[Level, ...]) -> int:
    """Rows of the table that `InterestHistory.steps` points into."""
    return max(1, _TABLE * len(levels))
