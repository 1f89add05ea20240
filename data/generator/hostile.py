"""Bots that push products, and canaries: events that nobody may see before a stated day."""

from __future__ import annotations

import numpy as np

from data.generator.config import CANARIES
from data.generator.draws import generator, mix
from data.generator.people import window
from data.generator.plan import Plan
from data.generator.rows import KIND, Rows, rows
from data.schema import MICROS_PER_DAY

_FAKED = [KIND[name] for name in ("view", "click", "cart", "purchase")]
_SHARES = (0.35, 0.4, 0.15, 0.1)
_FIRST_NAME = 40_000_000  # canaries are named after every conversion of their slice
_WAKING = 0.8  # the share of a day over which a patient bot spreads its events


def bot_rows(plan: Plan, day: int, slice_: int) -> Rows:
    """What bots do in a slice. A hasty bot does it all in minutes of one slice, a patient one over most of the day."""
    config = plan.config
    rng = generator(config.seed, "bots", day, slice_)
    turn = mix(config.seed, 3, plan.bots, day)
    acts = (turn >> np.uint64(40)).astype(np.float64) / (1 << 24) < config.bot_days
    hasty = np.array([name == "burst" for name in config.bot_behaviours])
    hasty = hasty[np.arange(len(plan.bots)) % len(hasty)]
    here = turn % np.uint64(config.slices) == slice_
    share = config.bot_events // config.slices + (slice_ < config.bot_events % config.slices)
    counts = np.where(hasty, here * config.bot_events, share) * acts
    first, last = window(config, day, slice_)
    bot = np.repeat(np.arange(len(plan.bots)), counts)
    span = np.where(hasty, min(config.bot_minutes * 60e6, (last - first) / 2), (last - first) * _WAKING)
    begin = rng.random(len(plan.bots)) * ((last - first) - span)
    ts = first + 1 + (begin[bot] + rng.random(len(bot)) * span[bot]).astype(np.int64)
    pushed = rng.random(len(bot)) < config.bot_target_share
    product = np.where(pushed, rng.choice(plan.targets, len(bot)), rng.choice(plan.popular, len(bot)))
    kind = rng.choice(_FAKED, len(bot), p=_SHARES).astype(np.int8)
    return rows(plan, plan.bots[bot], product.astype(np.int32), kind, ts)


def canary_rows(plan: Plan, day: int) -> Rows:
    """Canaries that become readable on a day: half of them happened up to two days earlier, but nobody knew.

    In turn: a canary user on a canary product, a person on a canary product, a canary user on a popular product.
    """
    config = plan.config
    rng = generator(config.seed, "canaries", day)
    left, since = config.days - config.canary_day, day - config.canary_day
    count = config.canaries * (since + 1) // left - config.canaries * since // left if since >= 0 else 0
    place = np.arange(count)
    known_at = config.midnight(day) + 1 + rng.integers(0, MICROS_PER_DAY - 2, count)
    late = np.where(place % 2 == 0, rng.integers(0, 2 * MICROS_PER_DAY, count), 0)
    user = np.where(place % 3 == 1, rng.choice(plan.user_order, count), config.users + place % CANARIES)
    product = np.where(place % 3 == 2, rng.choice(plan.popular, count), config.products + place % CANARIES)
    kind = rng.choice([*_FAKED, KIND["impression"]], count).astype(np.int8)
    ts = np.maximum(known_at - late, config.first_micros + 1)
    name = _FIRST_NAME + place.astype(np.int32)
    return rows(plan, user.astype(np.int32), product.astype(np.int32), kind, ts, known_at=known_at, name=name)
