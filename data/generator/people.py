"""What people see and do in one slice of a day: slates by interest, a funnel that depends on the slot."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.generator.config import Config
from data.generator.draws import Zipf, generator
from data.generator.plan import Plan
from data.generator.rows import KIND, Rows, rows
from data.schema import MICROS_PER_DAY

FINE, COARSE, ANY = range(3)
VIEWED = (0.5, 0.25, 0.08)
"""Chance that a product is viewed once it is looked at: of a fine interest, of the department, of neither."""
CLICKED, CARTED, BOUGHT, FOLLOWED, REFUSED = 0.5, 0.35, 0.45, 0.03, 0.01
"""Chances of the next step: a click after a view, a cart after it, a purchase after that; of following the advertiser
after a click; of refusing what fits no interest."""
_PACE = 600_000_000  # a request lasts at most ten minutes


def looked_at(config: Config) -> NDArray[np.float64]:
    """Chance that a slot is looked at, (slate,): the planted exposure bias."""
    return np.asarray((1.0 + np.arange(config.slate)) ** -config.position_decay, np.float64)


def events_per_request(config: Config) -> float:
    """Expected events of one request without its conversion."""
    rest = 1 - config.fine_share - config.coarse_share
    viewed = float(np.dot([config.fine_share, config.coarse_share, rest], VIEWED)) * looked_at(config).mean()
    after = 1 + CLICKED * (1 + CARTED * (1 + BOUGHT) + FOLLOWED)
    return config.slate * float(1 + viewed * after + rest * REFUSED)


def requests(config: Config) -> int:
    """Requests in a slice of a day; at least 1."""
    people = config.events / config.days / config.slices
    return max(1, round(people * (1 - config.conversion_share) / events_per_request(config)))


def window(config: Config, day: int, slice_: int) -> tuple[int, int]:
    """First and last microsecond of a slice."""
    length = MICROS_PER_DAY // config.slices
    first = config.midnight(day) + slice_ * length
    last = config.midnight(day + 1) if slice_ == config.slices - 1 else first + length
    return first, last - 1


class Shelf:
    """Who is there on a day: people by activity, and products by leaf and popularity."""

    def __init__(self, plan: Plan, day: int) -> None:
        self.plan, self.day = plan, day
        self.users = plan.users_on(day)
        self.products, counts = plan.products_on(day)
        self.first = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int32)
        self._user = Zipf(np.array([len(self.users)]), plan.config.user_skew)
        self._product = Zipf(counts, plan.config.product_skew)

    def draw_users(self, uniform: NDArray[np.float32]) -> NDArray[np.int32]:
        """A person for each of `uniform` (n,), Zipf by activity."""
        return np.asarray(self.users[self._user.ranks(0, uniform)])

    def draw_products(self, leaf: NDArray[np.int32], uniform: NDArray[np.float32]) -> NDArray[np.int32]:
        """A product of each of `leaf` (n,), Zipf by popularity."""
        return np.asarray(self.products[self.first[leaf] + self._product.ranks(leaf, uniform)])


def conversions(shelf: Shelf, slice_: int) -> dict[str, NDArray[Any]]:
    """Who converts on what, when, and when that becomes known; each (n,). Cheap, so that later days can ask again."""
    config = shelf.plan.config
    rng = generator(config.seed, "conversions", shelf.day, slice_)
    count = min(requests(config), round(config.events / config.days / config.slices * config.conversion_share))
    first, last = window(config, shelf.day, slice_)
    user = shelf.draw_users(rng.random(count, np.float32))
    leaf = shelf.plan.interest(user, 0, shelf.day)
    start = first + 1 + (rng.random(count) * (last - first) * 7 / 8).astype(np.int64)
    delay = rng.exponential(config.delay_days, count) * MICROS_PER_DAY
    longest = config.max_delay_days * MICROS_PER_DAY
    ts = start + _pace(config)
    slot = looked_at(config)
    return {
        "user": user,
        "product": shelf.draw_products(leaf, rng.random(count, np.float32)),
        "start": start,
        "position": rng.choice(config.slate, count, p=slot / slot.sum()).astype(np.int32),
        "ts": ts,
        "known_at": ts + np.minimum(delay, longest).astype(np.int64),
    }


def converted(plan: Plan, found: dict[str, NDArray[Any]], keep: NDArray[np.bool_]) -> Rows:
    """The rows of those conversions that `keep` (n,) names; conversion number i belongs to request number i."""
    number = np.flatnonzero(keep).astype(np.int32)
    kept = {name: found[name][keep] for name in ("user", "product", "ts", "known_at")}
    kind = np.full(len(number), KIND["conversion"], np.int8)
    return rows(plan, kind=kind, request=number, name=number, **kept)


def slice_rows(shelf: Shelf, slice_: int) -> list[Rows]:
    """All that people do in a slice but for conversions, in no order of time."""
    plan, config = shelf.plan, shelf.plan.config
    rng = generator(config.seed, "people", shelf.day, slice_)
    count, slate, sure = requests(config), config.slate, conversions(shelf, slice_)
    first, last = window(config, shelf.day, slice_)
    user = shelf.draw_users(rng.random(count, np.float32))
    start = first + 1 + (rng.random(count) * (last - first) * 7 / 8).astype(np.int64)
    converts = np.arange(len(sure["user"]))
    user[converts], start[converts] = sure["user"], sure["start"]
    affinity, leaf = _leaves(shelf, user, rng)
    product = shelf.draw_products(leaf.ravel(), rng.random(leaf.size, np.float32)).reshape(count, slate)
    chance = np.array(VIEWED, np.float32)[affinity] * looked_at(config).astype(np.float32)
    viewed = rng.random((count, slate), np.float32) < chance
    product[converts, sure["position"]] = sure["product"]
    viewed[converts, sure["position"]] = True
    refused = (affinity == ANY) & ~viewed & (rng.random((count, slate), np.float32) < REFUSED / (1 - VIEWED[ANY]))
    number = np.arange(count, dtype=np.int32)
    shown = rows(
        plan,
        np.repeat(user, slate),
        product.ravel(),
        KIND["impression"],
        np.repeat(start, slate),
        position=np.tile(np.arange(slate, dtype=np.int32), count),
        request=np.repeat(number, slate),
    )
    must = np.zeros((count, slate), bool)
    must[converts, sure["position"]] = True
    return [shown, *_funnel(shown, viewed.ravel(), must.ravel(), refused.ravel(), _pace(config), rng)]


def _pace(config: Config) -> int:
    """Longest time from the impression to the last step of a request [us]; a request ends in its slice."""
    return min(_PACE, MICROS_PER_DAY // config.slices // 10)


def _leaves(
    shelf: Shelf, user: NDArray[np.int32], rng: np.random.Generator
) -> tuple[NDArray[np.int8], NDArray[np.int32]]:
    """How each slot fits its user and which leaf it is filled from, both (requests, slate)."""
    plan, config = shelf.plan, shelf.plan.config
    shape = (len(user), config.slate)
    luck = rng.random(shape, np.float32)
    which = rng.random(shape, np.float32)
    fine, near = luck < config.fine_share, luck < config.fine_share + config.coarse_share
    slots = [np.broadcast_to(plan.interest(user, slot, shelf.day)[:, None], shape) for slot in (0, 1)]
    department = plan.user_department[user][:, None]
    drawn = (which * plan.num_tickets[department].astype(np.float32)).astype(np.int32)
    coarse = plan.tickets[plan.first_ticket[department] + drawn]
    leaf = np.where(which < 0.5, slots[0], slots[1])
    leaf = np.where(fine, leaf, coarse)
    elsewhere = np.searchsorted(np.cumsum(plan.leaf_weight)[:-1].astype(np.float32), which[~near], side="right")
    leaf[~near] = elsewhere
    affinity = np.where(fine, FINE, np.where(near, COARSE, ANY)).astype(np.int8)
    return affinity, leaf


def _funnel(
    shown: Rows,
    viewed: NDArray[np.bool_],
    must: NDArray[np.bool_],
    refused: NDArray[np.bool_],
    pace: int,
    rng: np.random.Generator,
) -> list[Rows]:
    """Steps after the impression; `must` are clicked for sure, because they convert."""

    def step(before: Rows, keep: NDArray[np.bool_], name: str) -> Rows:
        after = before.take(keep)
        later = after.ts + 1 + (rng.random(len(after.ts)) * (pace // 4 - 1)).astype(np.int64)
        kind = np.full(len(later), KIND[name], np.int8)
        return Rows(**{**vars(after), "kind": kind, "ts": later, "known_at": later})

    def chosen(before: Rows, chance: float) -> NDArray[np.bool_]:
        kept: NDArray[np.bool_] = rng.random(len(before.ts), np.float32) < chance
        return kept

    views = step(shown, viewed, "view")
    clicks = step(views, chosen(views, CLICKED) | must[viewed], "click")
    carts = step(clicks, chosen(clicks, CARTED), "cart")
    bought = step(carts, chosen(carts, BOUGHT), "purchase")
    follows = step(clicks, chosen(clicks, FOLLOWED), "interested")
    follows = Rows(**{**vars(follows), "product": np.full(len(follows.ts), -1, np.int32)})
    return [views, clicks, carts, bought, follows, step(shown, refused, "not_interested")]
