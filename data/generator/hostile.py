"""Bots that push products, and canaries: events that nobody may see before a stated day."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from data.generator.config import CANARIES
from data.generator.draws import generator, mix
from data.generator.people import window
from data.generator.plan import Plan
from data.generator.rows import KIND, Rows, rows
from data.schema import MICROS_PER_DAY

_FAKED = [KIND[name] for name in ("view", "click", "cart", "purchase")]
_HOUR = 3_600_000_000
_SHARES = (0.35, 0.4, 0.15, 0.1)
_FIRST_NAME = 40_000_000  # canaries are named after every conversion of their slice


def bot_rows(plan: Plan, day: int, slice_: int) -> Rows:
    """What bots do in a slice. A hasty bot does it all in minutes of one slice, a patient one in its waking hours."""
    config = plan.config
    rng = generator(config.seed, "bots", day, slice_)
    turn = mix(config.seed, 3, plan.bots, day)
    first, last = window(config, day, slice_)
    behaviour = np.arange(len(plan.bots)) % len(config.bot_behaviours)
    hasty = np.array([name == "burst" for name in config.bot_behaviours])[behaviour]
    wakes = config.midnight(day) + _share(mix(config.seed, 4, plan.bots, day)) * (24 - config.bot_hours) * _HOUR
    burst = min(config.bot_minutes * 60e6, (last - first) / 2)
    begins = np.where(hasty, first + rng.random(len(plan.bots)) * (last - first - burst), np.maximum(wakes, first))
    ends = np.where(hasty, begins + burst, np.minimum(wakes + config.bot_hours * _HOUR, last))
    awake = np.where(hasty, turn % np.uint64(config.slices) == slice_, (ends - begins) / (config.bot_hours * _HOUR))
    due = np.maximum(awake, 0) * config.bot_events + rng.random(len(plan.bots)) * (awake < 1)
    bot = np.repeat(np.arange(len(plan.bots)), due.astype(np.int64) * (_share(turn) < config.bot_days) * (awake > 0))
    ts = 1 + (begins[bot] + rng.random(len(bot)) * (ends - begins)[bot]).astype(np.int64)
    pushed = rng.random(len(bot)) < config.bot_target_share
    product = np.where(pushed, rng.choice(plan.targets, len(bot)), rng.choice(plan.popular, len(bot)))
    kind = rng.choice(_FAKED, len(bot), p=_SHARES).astype(np.int8)
    return rows(plan, plan.bots[bot], product.astype(np.int32), kind, np.minimum(ts, last))


def _share(hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Hashes as numbers in [0, 1)."""
    return (hashes >> np.uint64(40)).astype(np.float64) / (1 << 24)


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
