"""What is engaged with together: counts of product pairs in a user's sessions, and of advertiser pairs in user-days.

A session is a user's engaged events of one day with gaps of at most `session_minutes`. Three things keep anyone from
bending the counts: a product counts once per user and day (in the session of its last event), so a pair does too; a
session of n products adds 1 / (n - 1) to each of its pairs, so every product of it adds 1 in all, in a basket of two as
in one of fifty (Newman, 2001, on collaboration networks); and a pair takes part only with enough user-days from enough
different users. Weights of sampled events are left out on purpose: a stated probability must not multiply a vote.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from data.context import StageConfig, execution
from graph.chunks import Chunk
from graph.groups import crowded, mix, rank, starts
from graph.pairs import SUPPORT_UNIT, WEIGHT_UNIT, Pairs, added
from graph.store import CO_ENGAGED, SHARES_USERS, Relation

_MICROS_PER_MINUTE = 60_000_000


class Config(StageConfig):
    """How pairs are counted and when which of them become edges, for products and for advertisers alike."""

    grid_days: int = Field(default=28, ge=1, description="edges are made anew every so many days [days since 1970]")
    session_minutes: float | None = Field(
        default=60.0, gt=0, description="longest gap in a session [minutes]; unset: the whole day. Not for advertisers"
    )
    session_items: int = Field(default=50, ge=2, description="most distinct nodes of a session [count], the latest")
    min_support: int = Field(default=2, ge=1, description="fewest user-days [count] behind an edge")
    min_users: int = Field(
        default=2, ge=1, le=48, description="fewest different users [count, a safe bound of it] behind an edge"
    )
    days_per_user: float | None = Field(
        default=2.0, gt=0, description="mean user-days [count] of a user behind a pair that count, at most; unset: all"
    )
    shrinkage: float = Field(
        default=20.0, ge=0, description="users [count] at which a pair's score counts half; 0 switches it off"
    )
    top_k: int = Field(default=20, ge=1, description="most edges [count] of a node and grid date")
    keep_pairs: int | None = Field(
        default=256, ge=1, description="pairs [count] of a node remembered after a grid date, the best; unset: all"
    )
    half_life_days: float | None = Field(
        default=None, gt=0, description="age at which a count weighs half [days], applied at grid dates; unset: never"
    )
    batch_pairs: int = execution(4_000_000, "Pairs counted or added up at a time; about 120 bytes each.", ge=1_000)


def count(chunk: Chunk, engaged: NDArray[np.bool_], config: Config) -> Iterator[tuple[Relation, int, Pairs]]:
    """Pairs first < second of each relation and day of a guarded chunk; days without any are left out.

    `engaged` bool (event types,) says which show interest. A large day in several chunks comes in several parts, to be
    added. Time O(n log n + pairs log pairs), memory one day and `batch_pairs`.
    """
    interest = np.flatnonzero(engaged[chunk.kind])
    day = chunk.day[interest]
    edges = np.append(np.flatnonzero(starts(day)), len(day)).tolist()
    for start, end in pairwise(edges):
        for relation, nodes, gap in (
            (CO_ENGAGED, chunk.product, config.session_minutes),
            (SHARES_USERS, chunk.advertiser, None),
        ):
            rows = interest[start:end]
            rows = rows[nodes[rows] >= 0]
            rows = rows[crowded(chunk.user[rows].astype(np.int64), 1)]  # one event makes no pair
            pairs = _count_day(chunk.user[rows], chunk.time[rows], nodes[rows], gap, config)
            if len(pairs):
                yield relation, int(day[start]), pairs


def first_seen(chunk: Chunk) -> dict[int, int]:
    """When the first event of each day of a chunk became visible [us], by day number."""
    first = starts(chunk.day)
    return dict(zip(chunk.day[first].tolist(), chunk.visible_from[first].tolist(), strict=True))


def _count_day(
    user: NDArray[Any], time: NDArray[np.int64], node: NDArray[Any], gap: float | None, config: Config
) -> Pairs:
    order = _by_user_and_time(user, time)
    user, time, node = user[order], time[order], node[order].astype(np.int64)
    new_user = starts(user)
    apart = np.diff(time, prepend=time[:1]) > (np.inf if gap is None else gap * _MICROS_PER_MINUTE)
    session = np.cumsum(new_user | apart, dtype=np.int64)
    last = _last_of_each(np.cumsum(new_user, dtype=np.int64), node)
    user, time, node, session = user[last], time[last], node[last], session[last]
    kept = _latest(session, time, node, config.session_items)
    user, node, session = user[kept], node[kept], session[kept]
    return _all_pairs(user, node, session, config.batch_pairs)


def _by_user_and_time(user: NDArray[Any], time: NDArray[np.int64]) -> NDArray[np.int64]:
    """Order by (user, time). One sort of packed (user, position), several times faster than a sort by two keys."""
    in_time = np.argsort(time, kind="stable")  # nearly free where the log came in order of time
    bits = len(user).bit_length()
    packed = np.sort(user[in_time].astype(np.int64) << bits | np.arange(len(user)))
    return np.asarray(in_time[packed & ((1 << bits) - 1)])


def _last_of_each(group: NDArray[np.int64], node: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions, in order, of the last row of each (group, node)."""
    if not len(group):
        return group
    key = group << 32 | node
    order = np.argsort(key)
    first = np.flatnonzero(starts(key[order]))
    return np.sort(np.maximum.reduceat(order, first))


def _latest(
    session: NDArray[np.int64], time: NDArray[np.int64], node: NDArray[np.int64], most: int
) -> NDArray[np.int64]:
    """Rows sorted by (session, node), of sessions with 2 or more, and of each at most its `most` latest."""
    size = np.bincount(session)[session]
    large = np.flatnonzero(size > most)
    order = large[np.lexsort((mix(node[large]), -time[large], session[large]))]
    kept = size > 1
    kept[order[rank(starts(session[order])) >= most]] = False
    rows = np.flatnonzero(kept)
    return rows[np.argsort(session[rows] << 32 | node[rows])]


def _all_pairs(user: NDArray[np.int64], node: NDArray[np.int64], session: NDArray[np.int64], batch: int) -> Pairs:
    """The pairs of each session, its nodes in order, at most about `batch` at a time."""
    if not len(session):
        return Pairs.empty()
    first = np.flatnonzero(starts(session))
    size = np.diff(first, append=len(session))
    group = np.repeat(np.arange(len(first)), size)
    after = size[group] - 1 - (np.arange(len(session)) - first[group])  # rows of the session behind each row
    share = (WEIGHT_UNIT // (size - 1))[group]
    bit = np.uint64(1) << (mix(user) >> np.uint64(58))
    part = np.cumsum(after) // batch
    parts = []
    for start, end in _runs(part):
        ahead = after[start:end]
        left = np.repeat(np.arange(start, end), ahead)
        right = left + 1 + np.arange(len(left)) - np.repeat(np.cumsum(ahead) - ahead, ahead)
        key = node[left] << 32 | node[right]
        parts.append(added([Pairs(key, np.full(len(key), SUPPORT_UNIT, np.int32), share[left], bit[left])]))
    return parts[0] if len(parts) == 1 else added(parts)


def _runs(part: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    start = np.flatnonzero(starts(part))
    yield from zip(start.tolist(), [*start[1:].tolist(), len(part)], strict=True)
