"""What is fixed for the whole log: the interest tree, who owns what, when each comes, who is a bot, what it pushes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data.generator.config import CANARIES, Config
from data.generator.draws import Zipf, generator, mix
from data.schema import MICROS_PER_DAY

SLOTS = 2
"""Fine interests a user has at a time."""


@dataclass(frozen=True)
class Plan:
    """Arrays by number; the last CANARIES entries of each entity are the canaries. Days count from 0.

    Shapes: users (u,), products (p,), advertisers (a,), departments (d,), leaves (l,). A department's tickets are those
    from its `first_ticket` on; each names a leaf, and who turns to the department draws one.
    """

    config: Config
    user_department: NDArray[np.int32]
    user_day: NDArray[np.int32]
    user_order: NDArray[np.int32]  # people by activity, the most active first; bots and canaries are not in it
    product_leaf: NDArray[np.int32]
    product_advertiser: NDArray[np.int32]
    product_day: NDArray[np.int32]
    product_price: NDArray[np.float32]
    product_order: NDArray[np.int32]  # by leaf, the most popular of each first, without canaries
    advertiser_department: NDArray[np.int32]
    advertiser_day: NDArray[np.int32]
    leaf_weight: NDArray[np.float64]  # sums to 1
    tickets: NDArray[np.int32]
    first_ticket: NDArray[np.int32]
    num_tickets: NDArray[np.int32]
    advertiser_campaign: NDArray[np.int32]  # -1 for those without one
    campaign_advertiser: NDArray[np.int32]
    campaign_day: NDArray[np.int32]
    campaign_end: NDArray[np.int32]
    bots: NDArray[np.int32]
    targets: NDArray[np.int32]
    popular: NDArray[np.int32]  # products behind which bots hide
    names: Mapping[str, pa.Array] = field(default_factory=dict)  # ids by letter ("p", "a") where somebody gave them
    source: str = "generated"

    def interest(self, users: NDArray[np.int32], slot: int, day: int) -> NDArray[np.int32]:
        """The leaf of each user's fine interest `slot` on a day, int32 (n,)."""
        return self.interest_in(users, slot, self.epoch(users, slot, day))

    def epoch(self, users: NDArray[np.int32], slot: int, day: int) -> NDArray[np.int64]:
        """How often that interest has moved by then, int64 (n,): users drift at times of their own."""
        return (self._phase(users, slot) + day / self.config.drift_days).astype(np.int64)

    def moved_on(self, users: NDArray[np.int32], slot: int, epoch: NDArray[np.int64]) -> NDArray[np.int64]:
        """The first day after `epoch` moves, int64 (n,)."""
        day = np.ceil((epoch - self._phase(users, slot)) * self.config.drift_days)
        return np.maximum(day, 0).astype(np.int64)

    def _phase(self, users: NDArray[np.int32], slot: int) -> NDArray[np.float64]:
        return (mix(self.config.seed, 1, users, slot) >> np.uint64(40)).astype(np.float64) / (1 << 24)

    def interest_in(self, users: NDArray[np.int32], slot: int, epoch: NDArray[np.int64]) -> NDArray[np.int32]:
        """The leaf of that interest after `epoch` moves: always in the user's department."""
        department = self.user_department[users]
        drawn = mix(self.config.seed, 2, users, slot, epoch) % self.num_tickets[department].astype(np.uint64)
        return self.tickets[self.first_ticket[department] + drawn.astype(np.int32)]

    def products_on(self, day: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Products known by the midnight that begins `day`, in `product_order`, and how many each leaf has (l,)."""
        order = self.product_order[self.product_day[self.product_order] <= day]
        return order, np.bincount(self.product_leaf[order], minlength=len(self.leaf_weight))

    def users_on(self, day: int) -> NDArray[np.int32]:
        """People known by then, in `user_order`."""
        return self.user_order[self.user_day[self.user_order] <= day]

    def campaign_of(self, advertisers: NDArray[np.int32], days: NDArray[np.int64]) -> NDArray[np.int32]:
        """The campaign that each advertiser runs on its day, -1 where there is none; (n,) -> (n,)."""
        if not len(self.campaign_day):
            return np.full(len(advertisers), -1, np.int32)
        found = self.advertiser_campaign[advertisers]
        runs = (found >= 0) & (self.campaign_day[found] <= days) & (days < self.campaign_end[found])
        return np.where(runs, found, np.int32(-1))

    def known_at(self, days: NDArray[Any]) -> NDArray[np.int64]:
        """Midnights that begin `days`, in microseconds since 1970."""
        return self.config.first_micros + days.astype(np.int64) * MICROS_PER_DAY


def make_plan(config: Config) -> Plan:
    """The plan of a config. Memory: about 16 bytes a user and 24 a product."""
    rng = generator(config.seed, "plan")
    weight = np.asarray((1.0 + rng.permutation(config.num_leaves)) ** -0.5, np.float64)
    weight /= weight.sum()
    advertiser_day = arrivals(config.advertisers, config, rng)
    advertiser_day[: config.departments] = 0  # each department always has somebody to sell in it
    products = _products(config, advertiser_day, rng)
    bots = np.sort(rng.choice(config.users, config.num_bots, replace=False)).astype(np.int32)
    user_day = arrivals(config.users, config, rng)
    user_day[bots] = 0
    people = np.setdiff1d(np.arange(config.users, dtype=np.int32), bots, assume_unique=True)
    own = np.int32(config.categories * config.leaves)
    department = rng.choice(config.num_leaves, config.users + CANARIES, p=weight).astype(np.int32) // own
    start = rng.integers(0, max(1, config.days - config.days // 4), config.campaigns)
    owner = rng.choice(config.advertisers, config.campaigns, replace=False).astype(np.int32)
    start = np.maximum(start, advertiser_day[owner])
    advertisers = np.arange(config.advertisers + CANARIES, dtype=np.int32)
    campaign = np.full(len(advertisers), -1, np.int32)
    campaign[owner] = np.arange(config.campaigns)
    return Plan(
        config=config,
        user_department=department,
        user_day=_with_canaries(user_day, config),
        user_order=rng.permutation(people),
        advertiser_department=advertisers % np.int32(config.departments),
        advertiser_day=_with_canaries(advertiser_day, config),
        leaf_weight=weight,
        tickets=np.arange(config.num_leaves, dtype=np.int32),
        first_ticket=np.arange(config.departments, dtype=np.int32) * own,
        num_tickets=np.full(config.departments, own),
        advertiser_campaign=campaign,
        campaign_advertiser=owner,
        campaign_day=start.astype(np.int32),
        campaign_end=(start + max(1, config.days // 4)).astype(np.int32),
        bots=bots,
        **products,
    )


def _products(config: Config, advertiser_day: NDArray[np.int32], rng: np.random.Generator) -> dict[str, Any]:
    count, own = config.products, config.categories * config.leaves
    leaf = (rng.permutation(count) % config.num_leaves).astype(np.int32)
    order = np.lexsort((rng.permutation(count), leaf)).astype(np.int32)
    first = order[np.flatnonzero(np.diff(leaf[order], prepend=-1))]
    sellers = np.bincount(np.arange(config.advertisers) % config.departments)
    department = leaf // own
    rank = Zipf(sellers, 0.8).ranks(department, rng.random(count, np.float32))
    rank[first] = 0
    advertiser = department + np.int32(config.departments) * rank
    day = np.maximum(arrivals(count, config, rng), advertiser_day[advertiser])
    day[first] = 0  # no leaf is ever empty
    settled = order[day[order] == 0]
    place = np.arange(len(settled)) - np.searchsorted(leaf[settled], leaf[settled])
    tail = settled[place >= np.quantile(place, 0.5)]
    extra = np.arange(CANARIES, dtype=np.int32)
    return {
        "product_leaf": np.concatenate([leaf, extra % np.int32(config.num_leaves)]),
        "product_advertiser": np.concatenate([advertiser, config.advertisers + extra]),
        "product_day": _with_canaries(day, config),
        "product_price": np.exp(rng.normal(2.5, 0.8, count + CANARIES)).astype(np.float32).round(2),
        "product_order": order,
        "targets": np.sort(rng.choice(tail, min(config.targets, len(tail)), replace=False)),
        "popular": settled[place < 2],
    }


def arrivals(count: int, config: Config, rng: np.random.Generator) -> NDArray[np.int32]:
    """The day on which each becomes known: 0, or for the cold ones any later day."""
    cold = rng.random(count, np.float32) < config.cold_share
    return np.where(cold & (config.days > 1), rng.integers(1, max(2, config.days), count), 0).astype(np.int32)


def _with_canaries(days: NDArray[np.int32], config: Config) -> NDArray[np.int32]:
    return np.concatenate([days, np.full(CANARIES, config.canary_day, np.int32)])
