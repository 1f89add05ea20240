"""Catalogue and truth of a generated log, in pieces of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data.generator.config import CANARIES
from data.generator.people import CLICKED, VIEWED, looked_at
from data.generator.plan import SLOTS, Plan
from data.generator.strings import entities
from data.schema import ADVERTISERS, CAMPAIGNS, PRODUCTS, USERS

_PIECE = 1 << 18
_STYLES = pa.array(["Classic", "Daily", "Family", "Golden", "Mini", "Organic", "Premium", "Rustic"])
_REGIONS = pa.array(["north", "south", "west"])
INTERESTS = pa.schema(
    [("user_id", pa.string()), ("slot", pa.int8()), ("category", pa.list_(pa.string())), ("since", pa.int64())]
)
"""Truth of users: the leaf of a fine interest from `since` [us] until the next row of the same slot."""
BOTS = pa.schema([("user_id", pa.string()), ("behaviour", pa.string())])

Pieces = Iterator[pa.Table]


def products(plan: Plan) -> Pieces:
    """Table `products`; a product's category path is its planted leaf."""
    for index in _pieces(plan, plan.config.products):
        known, style = plan.known_at(plan.product_day[index]), _STYLES.take(pa.array(index % len(_STYLES)))
        identity = entities("p", index, plan.config.products)
        yield _table(
            PRODUCTS,
            len(index),
            product_id=identity,
            advertiser_id=entities("a", plan.product_advertiser[index], plan.config.advertisers),
            title=pc.binary_join_element_wise(style, _names(plan, 2, plan.product_leaf[index]), identity, " "),
            category=_paths(plan, plan.product_leaf[index]),
            attributes=_attribute("style", style),
            price=pa.array(plan.product_price[index]),
            first_seen=pa.array(known),
            known_at=pa.array(known),
        )


def advertisers(plan: Plan) -> Pieces:
    """Table `advertisers`; `vertical` is the planted department."""
    leaves = plan.config.categories * plan.config.leaves
    for index in _pieces(plan, plan.config.advertisers):
        identity = entities("a", index, plan.config.advertisers)
        vertical = _names(plan, 0, plan.advertiser_department[index] * leaves)
        yield _table(
            ADVERTISERS,
            len(index),
            advertiser_id=identity,
            name=pc.binary_join_element_wise(vertical, identity, " "),
            vertical=vertical,
            known_at=pa.array(plan.known_at(plan.advertiser_day[index])),
        )


def campaigns(plan: Plan) -> Pieces:
    """Table `campaigns`."""
    for index in _pieces(plan, plan.config.campaigns, plants=0):
        start = pa.array(plan.known_at(plan.campaign_day[index]))
        yield _table(
            CAMPAIGNS,
            len(index),
            campaign_id=entities("c", index, plan.config.campaigns),
            advertiser_id=entities("a", plan.campaign_advertiser[index], plan.config.advertisers),
            kind=pa.array(["display"]).take(pa.array(index * 0)),
            start=start,
            end=pa.array(plan.known_at(plan.campaign_end[index])),
            known_at=start,
        )


def users(plan: Plan) -> Pieces:
    """Table `users`."""
    for index in _pieces(plan, plan.config.users):
        yield _table(
            USERS,
            len(index),
            user_id=entities("u", index, plan.config.users),
            attributes=_attribute("region", _REGIONS.take(pa.array(index % len(_REGIONS)))),
            known_at=pa.array(plan.known_at(plan.user_day[index])),
        )


def interests(plan: Plan) -> Pieces:
    """Truth of people (schema INTERESTS): bots and canaries have none."""
    people = np.sort(plan.user_order)
    for place in _pieces(plan, len(people), plants=0):
        user = people[place]
        for slot in range(SLOTS):
            moves = plan.epoch(user, slot, plan.config.days - 1) + 1
            owner = np.repeat(user, moves)
            epoch = np.arange(len(owner)) - np.repeat(np.cumsum(moves) - moves, moves)
            since = plan.known_at(plan.moved_on(owner, slot, epoch))
            columns = [
                entities("u", owner, plan.config.users),
                pa.array(np.full(len(owner), slot, np.int8)),
                _paths(plan, plan.interest_in(owner, slot, epoch)),
                pa.array(since),
            ]
            yield pa.Table.from_arrays(columns, schema=INTERESTS)


def bots(plan: Plan) -> pa.Table:
    """Truth of bots (schema BOTS)."""
    behaviours = pa.array(plan.config.bot_behaviours, pa.string())
    turns = pa.array(np.arange(len(plan.bots)) % len(behaviours))
    return pa.Table.from_arrays([entities("u", plan.bots, plan.config.users), behaviours.take(turns)], schema=BOTS)


def facts(plan: Plan) -> dict[str, Any]:
    """The rest of the truth, JSON-able: config, targets, and the laws of exposure, clicks and delays."""
    config = plan.config
    targets = entities("p", plan.targets, config.products).to_pylist() if config.num_bots else []
    return {
        "config": config.model_dump(mode="json"),
        "targets": targets,
        "canary_from": config.midnight(config.canary_day) + 1 if config.canaries else None,
        "looked_at": looked_at(config).round(6).tolist(),
        "viewed": dict(zip(("fine", "coarse", "any"), VIEWED, strict=True)),
        "clicked": CLICKED,
        "delay_days": {"law": "exponential, cut", "mean": config.delay_days, "max": config.max_delay_days},
    }


def _pieces(plan: Plan, count: int, plants: int = CANARIES) -> Iterator[NDArray[np.int64]]:
    """Numbers of `count` entities, and after them those of the canaries where any are planted."""
    total = count + (plants if plan.config.canaries else 0)
    for first in range(0, total, _PIECE):
        yield np.arange(first, min(total, first + _PIECE))


def _table(schema: pa.Schema, count: int, **columns: pa.Array) -> pa.Table:
    filled = [columns.get(field.name, pa.nulls(count, field.type)) for field in schema]
    return pa.Table.from_arrays(filled, schema=schema)


def _names(plan: Plan, depth: int, leaf: NDArray[Any]) -> pa.Array:
    """Name of the node of the interest tree at `depth` (0: department, 2: leaf) above each leaf (n,)."""
    config = plan.config
    parts = []
    for number in range(config.num_leaves):
        category, own = divmod(number, config.leaves)
        department = f"Department {category // config.categories:02d}"
        names = [department, f"{department} Aisle {category % config.categories}"]
        parts.append([*names, f"{names[-1]} Shelf {own}"][depth])
    return pa.array(parts).take(pa.array(leaf))


def _paths(plan: Plan, leaf: NDArray[Any]) -> pa.Array:
    levels = [_names(plan, depth, np.arange(plan.config.num_leaves)).to_pylist() for depth in range(3)]
    return pa.array([list(path) for path in zip(*levels, strict=True)], pa.list_(pa.string())).take(pa.array(leaf))


def _attribute(name: str, values: pa.Array) -> pa.Array:
    offsets = pa.array(np.arange(len(values) + 1, dtype=np.int32))
    return pa.MapArray.from_arrays(offsets, pa.array([name]).take(pa.array(np.zeros(len(values), np.int8))), values)
