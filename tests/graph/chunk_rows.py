"""Chunks from plain tuples, for tests of what works on chunks."""

from collections.abc import Iterable

import numpy as np

from data.parts import day_of
from data.schema import EVENT_TYPES, MICROS_PER_DAY
from graph.chunks import Chunk

Row = tuple[int, int, str, float]
"""user, product (-1 for none), event type, time in days since 1970; advertiser is product // 10."""


def chunk_of(rows: Iterable[Row], days: tuple[int, int] | None = None) -> Chunk:
    """The rows as a chunk, each visible 1 us after its time; `days` are the first and the last day number."""
    rows = list(rows)
    product = np.array([row[1] for row in rows], np.int32)
    time = np.array([round(row[3] * MICROS_PER_DAY) for row in rows], np.int64)
    order = np.argsort(time, kind="stable")
    day = day_of(time + 1)
    return Chunk(
        user=np.array([row[0] for row in rows], np.int32)[order],
        product=product[order],
        advertiser=np.where(product >= 0, product // 10, -1).astype(np.int32)[order],
        campaign=np.full(len(rows), -1, np.int32),
        kind=np.array([EVENT_TYPES.index(row[2]) for row in rows], np.int8)[order],
        time=time[order],
        visible_from=time[order] + 1,
        weight=np.ones(len(rows), np.float32),
        first_day=days[0] if days else int(day.min(initial=0)),
        last_day=days[1] if days else int(day.max(initial=0)),
    )


def shuffled_ties(chunk: Chunk, seed: int) -> Chunk:
    """The same events, those of equal (visible_from, time) in another order."""
    order = np.random.default_rng(seed).permutation(len(chunk))
    return chunk.take(order[np.lexsort((chunk.time[order], chunk.visible_from[order]))])


def contents(chunk: Chunk) -> list[tuple]:
    """The events as a sorted list."""
    columns = (chunk.user, chunk.product, chunk.advertiser, chunk.kind, chunk.time, chunk.visible_from, chunk.weight)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))
