"""What was an entity's strongest primitive under the vocabulary before, so that a near tie does not change it.

A retrain moves every vector a little, and an entity half-way between two primitives changes sides for no reason that a
reader of its tokens would care about. Those who learn from tokens pay for each change.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data.artifacts import ArtifactRef
from data.timegrid import TOKENS, file_date
from graph.store import index_in
from hierarchy.levels import Level

_COLUMNS = ["entity_type", "entity_id", "level", "primitive_id"]


class Held:
    """The strongest primitive of every entity at each of `levels` by the tokens `previous`, read up to a date.

    margin: the share of a bag by which another has to lead. Memory: about 400 bytes an entity; time: one pass over the
    earlier tokens for each level.
    """

    def __init__(self, previous: ArtifactRef, levels: Sequence[Level], margin: float) -> None:
        self.previous, self.levels, self.margin = previous, levels, margin
        self._left = previous.names(TOKENS)
        self._rows: dict[tuple[str, str], NDArray[np.int64]] = {}

    def read_until(self, date: int) -> None:
        """Take in what was said up to `date` [us]; dates must rise from call to call."""
        while self._left and file_date(self._left[0]) <= date:
            for number, level in enumerate(self.levels):
                strongest = (pc.field("rank") == 0) & (pc.field("level") == level.level)
                rows = self.previous.table(self._left[0], _COLUMNS, strongest)
                place = index_in(rows["primitive_id"].combine_chunks(), level.ids).tolist()
                keys = zip(rows["entity_type"].to_pylist(), rows["entity_id"].to_pylist(), strict=True)
                for key, primitive in zip(keys, place, strict=True):
                    self._of(key)[number] = primitive
            self._left = self._left[1:]

    def of(self, keys: pa.Table) -> list[NDArray[np.int64]]:
        """By level the row (n,) of the primitive that the entities of `keys` had; -1 where none, or no longer there."""
        none = np.full(len(self.levels), -1, np.int64)
        named = zip(keys["entity_type"].to_pylist(), keys["entity_id"].to_pylist(), strict=True)
        found = np.array([self._rows.get(key, none) for key in named], np.int64).reshape(-1, len(self.levels))
        return list(found.T)

    def _of(self, key: tuple[str, str]) -> NDArray[np.int64]:
        return self._rows.setdefault(key, np.full(len(self.levels), -1, np.int64))
