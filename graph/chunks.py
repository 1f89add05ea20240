"""The encoded log handed from step to step of the build: a chunk of whole days, or a user-hash part of a large day."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.parts import day_of


@dataclass(frozen=True)
class Chunk:
    """n events by internal id, sorted by (visible_from, time); a user's day is never split over two chunks.

    user, product, advertiser, campaign int32 or int64 (n,), -1 for none; kind int8 (n,), index in EVENT_TYPES; time
    and visible_from int64 us (n,); weight float32 (n,). `advertiser` is the event's own, with or without a product.
    All days (data.parts.day_of of visible_from) lie in first_day .. last_day, both included.
    """

    user: NDArray[Any]
    product: NDArray[Any]
    advertiser: NDArray[Any]
    campaign: NDArray[Any]
    kind: NDArray[np.int8]
    time: NDArray[np.int64]
    visible_from: NDArray[np.int64]
    weight: NDArray[np.float32]
    first_day: int
    last_day: int

    def __len__(self) -> int:
        return len(self.user)

    @property
    def day(self) -> NDArray[np.int64]:
        """Day number of each event, int64 (n,)."""
        return day_of(self.visible_from)

    @cached_property
    def prompt(self) -> bool:
        """Whether every event was visible as soon as it had happened: then `time` is visible_from - 1."""
        return bool((self.time == self.visible_from - 1).all())

    @cached_property
    def unweighted(self) -> bool:
        """Whether every weight is 1."""
        return bool((self.weight == 1).all())

    def take(self, rows: Any) -> Chunk:
        """The events at `rows` (a slice, positions or a mask, any that keep the order), of the same days."""
        return dataclasses.replace(self, **{name: getattr(self, name)[rows] for name in COLUMNS})

    @classmethod
    def concatenate(cls, chunks: Sequence[Chunk]) -> Chunk:
        """One chunk of one or more that follow each other in time."""
        columns = {name: np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in COLUMNS}
        return cls(**columns, first_day=chunks[0].first_day, last_day=chunks[-1].last_day)


COLUMNS = ("user", "product", "advertiser", "campaign", "kind", "time", "visible_from", "weight")
"""The fields of a chunk that have one value an event."""
