"""One day of the log, in the order in which it is stored."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from data.generator.hostile import bot_rows, canary_rows
from data.generator.people import Shelf, conversions, converted, slice_rows, window
from data.generator.plan import Plan
from data.generator.rows import Rows, concat, in_time_order, table
from data.parts import day_of
from data.schema import MICROS_PER_DAY, visible_from


def day(plan: Plan, number: int) -> Iterator[pa.Table]:
    """What becomes readable on day `number` (from 0), as tables of schema EVENTS sorted by (ts, event_id).

    Depends on the plan and the day alone. Memory: one slice, about 400 bytes a row.
    """
    config, shelf = plan.config, Shelf(plan, number)
    canaries = canary_rows(plan, number)
    early = canaries.ts < config.midnight(number)
    yield from _of_earlier_days(plan, number, canaries.take(early))
    for slice_ in range(config.slices):
        first, last = window(config, number, slice_)
        timely = canaries.take(~early & (canaries.ts >= first) & (canaries.ts <= last))
        known = _converted_on(shelf, slice_, number)
        found = concat([*slice_rows(shelf, slice_), bot_rows(plan, number, slice_), known, timely])
        made = np.full(len(found.ts), number * config.slices + slice_, np.int64)
        yield table(plan, in_time_order(found), made)


def _converted_on(shelf: Shelf, slice_: int, number: int) -> Rows:
    """Conversions of a slice of the shelf's day that become readable on day `number`."""
    found = conversions(shelf, slice_)
    seen = day_of(visible_from(found["ts"], found["known_at"]))
    return converted(shelf.plan, found, seen == shelf.plan.config.first_micros // MICROS_PER_DAY + number)


def _of_earlier_days(plan: Plan, number: int, canaries: Rows) -> Iterator[pa.Table]:
    """Conversions and canaries that happened before day `number` and become readable on it, by time."""
    parts, made, slices = [], [], plan.config.slices
    for past in range(max(0, number - plan.config.max_delay_days - 1), number):
        shelf = Shelf(plan, past)
        for slice_ in range(slices):
            parts.append(_converted_on(shelf, slice_, number))
            made.append(np.full(len(parts[-1].ts), past * slices + slice_, np.int64))
    together = concat([*parts, canaries])
    origin = np.concatenate([*made, np.full(len(canaries.ts), number * slices, np.int64)])
    order = np.argsort(together.ts, kind="stable")
    if len(order):
        yield table(plan, together.take(order), origin[order])
