"""Guards: events no person makes in a day leave the log before it becomes edges.

Every rule looks at one user's single day, so days can be guarded one by one, in any order, on any machine. Four rules
judge the whole user-day and drop all of it, the impressions too (clicks without them would turn the rest into
rejections). That reads the rest of that day, but it can only remove a user-day whole: no example of that user-day is
left that could learn from it. To drop only what follows the burst would let every bot through up to the limit, every
day, which is most of what a patient one does. The caps keep what came first and never look ahead.

A basket is many products at one moment, so acts are counted in distinct moments: 200 lines of one receipt are one act.
Forty acts in ten minutes, or acts in eighteen different hours of a day, are more than any buyer in a web shop's log
(RetailRocket) or a grocer's (Complete Journey) ever made. A bot that pushes few products comes back to them more often
than the steps of a purchase ask for. One that acts, rests and varies like a keen person passes: no single day tells the
two apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from data.context import StageConfig
from data.schema import EVENT_TYPES
from graph.chunks import Chunk
from graph.groups import crowded, members, mix, rank, starts

RULES = ("burst", "sleepless", "repetition", "focus", "repeats", "user_day", "impressions", "not_interested")
"""In the order in which they are applied: an event is counted under the first that cuts it."""

_MICROS_PER_HOUR = 3_600_000_000
_IMPRESSION, _REJECTION = EVENT_TYPES.index("impression"), EVENT_TYPES.index("not_interested")


class Config(StageConfig):
    """Limits on a user's day. Engaged events are all but impressions and not_interested. None switches a rule off."""

    burst_moments: int | None = Field(
        default=40,
        ge=1,
        description="most distinct moments [count] with engaged events within burst_seconds; more drop the user-day",
    )
    burst_seconds: float = Field(
        default=600.0, gt=0, description="window of the burst rule [s]; no effect if burst_moments is unset"
    )
    awake_hours: int | None = Field(
        default=17,
        ge=1,
        description="most different hours of a day [count] with engaged events; more drop the user-day",
    )
    repetition: float | None = Field(
        default=4.0,
        gt=1,
        description="most events [mean count] of one type on one target over a user-day; more drop the user-day",
    )
    judged_events: int = Field(
        default=40, ge=1, description="engaged events [count] of a user-day from which awake_hours and repetition apply"
    )
    focus_moments: int | None = Field(
        default=5,
        ge=2,
        description="engaged moments [count] on one target in a day that are more than the steps of a purchase",
    )
    focus_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="share of a day's moments on such targets that drops it; no effect if focus_moments is unset",
    )
    focus_events: int = Field(
        default=20, ge=1, description="moments [count] from which focus is judged; no effect if focus_moments is unset"
    )
    repeats: int | None = Field(
        default=5, ge=1, description="most events [count] of a type by a user on one target a day; not for impressions"
    )
    user_day: int | None = Field(default=500, ge=1, description="most engaged events [count] of a user and day")
    impressions: int | None = Field(default=2_000, ge=1, description="most impressions [count] of a user and day")
    not_interested: int | None = Field(
        default=50, ge=1, description="most not_interested events [count] of a user and day"
    )
    max_weight: float | None = Field(
        default=10_000.0,
        ge=1,
        description="largest weight [1 / sample_prob] of an event; larger ones are lowered to it",
    )


def guard(chunk: Chunk, config: Config) -> tuple[Chunk, dict[str, Any]]:
    """The events of `chunk` that pass, weights capped, and what was cut.

    Counts: seen {event type: rows}, cut {rule: {event type: rows}}, user_days {rule: user-days dropped whole} and
    weights_capped. They add over chunks (`add_counts`). Time O(n) plus sorts of the few user-days near a limit.
    """
    day = _Day(chunk, config)
    cut = np.zeros(len(chunk), np.int8)  # 0 kept, else 1 + index in RULES
    dropped = {}
    for name, judge in _JUDGES.items():
        flagged = judge(day, config)
        dropped[name] = len(flagged)
        _mark(cut, name, day.rows_of(flagged))
    _mark(cut, "repeats", day.beyond(cut, day.kind != _IMPRESSION, config.repeats, by_target=True))
    _mark(cut, "user_day", day.beyond(cut, day.engaged, config.user_day))
    _mark(cut, "impressions", day.beyond(cut, day.kind == _IMPRESSION, config.impressions))
    _mark(cut, "not_interested", day.beyond(cut, day.kind == _REJECTION, config.not_interested))
    kept, capped = _weights_capped(chunk.take(cut == 0) if cut.any() else chunk, config.max_weight)
    by_rule = {name: _by_type(chunk.kind[cut == code]) for code, name in enumerate(RULES, start=1)}
    return kept, {"seen": _by_type(chunk.kind), "cut": by_rule, "user_days": dropped, "weights_capped": capped}


def add_counts(total: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The counts of two chunks together; an empty `total` is nothing."""
    names = dict.fromkeys((*total, *more))
    nested = {name for name in names if isinstance(more.get(name, total.get(name)), Mapping)}
    return {
        name: add_counts(total.get(name, {}), more.get(name, {}))
        if name in nested
        else total.get(name, 0) + more.get(name, 0)
        for name in names
    }


class _Day:
    """A chunk's events by user-day and target, as single int64 keys."""

    def __init__(self, chunk: Chunk, config: Config) -> None:
        self.chunk, self.kind = chunk, chunk.kind
        self.least = min(config.judged_events, config.burst_moments or config.judged_events)
        if config.focus_moments is not None:
            self.least = min(self.least, config.focus_events)
        self.engaged = (self.kind != _IMPRESSION) & (self.kind != _REJECTION)
        self.key = chunk.user.astype(np.int64) * (chunk.last_day - chunk.first_day + 1) + (chunk.day - chunk.first_day)

    def acts(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """What the events at `rows` did: target and event type in one number; -1 .. -8 without a target."""
        part = self.chunk.take(rows)
        target = np.full(len(rows), -1, np.int64)
        for code, column in enumerate((part.campaign, part.advertiser, part.product)):
            target = np.where(column >= 0, column.astype(np.int64) * 3 + code, target)
        return target * len(EVENT_TYPES) + part.kind

    @cached_property
    def busy(self) -> NDArray[np.int64]:
        """Engaged events of all user-days that a rule may judge, and of few others, by user-day and time."""
        rows = np.flatnonzero(self.engaged)
        rows = rows[crowded(self.key[rows], self.least - 1)]
        return rows[np.lexsort((self.chunk.time[rows], self.key[rows]))]

    def rows_of(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """All events of the user-days `keys`."""
        return members(self.key, keys) if len(keys) else keys

    def beyond(
        self, cut: NDArray[np.int8], of: NDArray[np.bool_], limit: int | None, by_target: bool = False
    ) -> NDArray[np.int64]:
        """Events not `cut` yet that come after the first `limit` of their user-day (and target and type)."""
        if limit is None:
            return np.zeros(0, np.int64)
        rows = np.flatnonzero(of & (cut == 0))
        rows = rows[crowded(self.key[rows], limit)]
        acts = np.zeros(len(rows), np.int64)
        if by_target:
            acts = self.acts(rows)
            near = crowded(mix(self.key[rows], acts).astype(np.int64), limit)
            rows, acts = rows[near], acts[near]
        key, part = self.key[rows], self.chunk.take(rows)
        seen, weight = part.visible_from, part.weight.view(np.int32)
        tie = mix(part.product, part.advertiser, part.campaign, part.kind, seen, weight)
        order = np.lexsort((tie, part.time, acts, key))
        place = rank(starts(key[order], acts[order]))
        return rows[order[place >= limit]]


def _bursts(day: _Day, config: Config) -> NDArray[np.int64]:
    """User-days with more than `burst_moments` distinct moments of engagement within `burst_seconds`."""
    limit = config.burst_moments
    if limit is None:
        return np.zeros(0, np.int64)
    rows = day.busy
    key, time = day.key[rows], day.chunk.time[rows]
    moment = starts(key, time)
    key, time = key[moment], time[moment]
    behind = max(len(time) - limit, 0)
    span = time[limit:] - time[:behind]
    near = (key[limit:] == key[:behind]) & (span <= config.burst_seconds * 1e6)
    return np.unique(key[limit:][near])


def _sleepless(day: _Day, config: Config) -> NDArray[np.int64]:
    """User-days of many engaged events in more than `awake_hours` different hours."""
    if config.awake_hours is None:
        return np.zeros(0, np.int64)
    rows = day.busy
    key, hour = day.key[rows], day.chunk.time[rows] // _MICROS_PER_HOUR
    first, events, hours = _sizes(key, starts(key, hour))
    return key[first[(events >= config.judged_events) & (hours > config.awake_hours)]]


def _repetitive(day: _Day, config: Config) -> NDArray[np.int64]:
    """User-days of many engaged events that do the same to few targets, over and over."""
    if config.repetition is None:
        return np.zeros(0, np.int64)
    rows = day.busy
    key, acts = day.key[rows], day.acts(rows)
    order = np.lexsort((acts, key))
    key, acts = key[order], acts[order]
    first, events, distinct = _sizes(key, starts(key, acts))
    return key[first[(events >= config.judged_events) & (events > config.repetition * distinct)]]


def _sizes(key: NDArray[np.int64], new: NDArray[np.bool_]) -> tuple[NDArray[np.int64], ...]:
    """Where each group of sorted `key` starts, its size, and how many of its rows are `new`; each (groups,)."""
    first = np.flatnonzero(starts(key))
    events = np.diff(first, append=len(key))
    distinct = np.add.reduceat(new.astype(np.int64), first) if len(first) else events
    return first, events, distinct


def _focused(day: _Day, config: Config) -> NDArray[np.int64]:
    """User-days of many moments, most of them on targets that are come back to again and again.

    A patient bot spreads its acts over hours and types and hides among popular products, so that neither a burst nor
    the mean repetition shows it. A person's way to a purchase (view, click, cart, purchase) takes four moments.
    """
    if config.focus_moments is None:
        return np.zeros(0, np.int64)
    rows = day.busy
    key, target, time = day.key[rows], day.acts(rows) // len(EVENT_TYPES), day.chunk.time[rows]
    order = np.lexsort((time, target, key))
    order = order[starts(key[order], target[order], time[order])]
    first = np.flatnonzero(starts(key[order], target[order]))
    moments, owner = np.diff(first, append=len(order)), key[order][first]
    user_day = np.flatnonzero(starts(owner))
    if not len(user_day):
        return owner
    total = np.add.reduceat(moments, user_day)
    again = np.add.reduceat(np.where(moments >= config.focus_moments, moments, 0), user_day)
    return owner[user_day[(total >= config.focus_events) & (again >= config.focus_share * total)]]


_JUDGES = {"burst": _bursts, "sleepless": _sleepless, "repetition": _repetitive, "focus": _focused}
"""Rules that drop user-days whole."""


def _mark(cut: NDArray[np.int8], rule: str, rows: NDArray[np.int64]) -> None:
    cut[rows[cut[rows] == 0]] = 1 + RULES.index(rule)


def _weights_capped(chunk: Chunk, limit: float | None) -> tuple[Chunk, int]:
    heavy = 0 if limit is None else int((chunk.weight > limit).sum())
    return (replace(chunk, weight=np.minimum(chunk.weight, np.float32(limit))), heavy) if heavy else (chunk, 0)


def _by_type(kind: NDArray[np.int8]) -> dict[str, int]:
    counts = np.bincount(kind, minlength=len(EVENT_TYPES)).tolist()
    return {name: count for name, count in zip(EVENT_TYPES, counts, strict=True) if count}
