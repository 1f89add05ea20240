"""A plan whose products, owners and interest tree are a given catalogue's: only people and what they do are made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data.errors import BadDataError
from data.generator.config import Config
from data.generator.draws import generator
from data.generator.plan import Plan, arrivals

SOURCE = "simulated"
"""`source` of every event made on a given catalogue."""

Numbers = NDArray[np.int32]
Arrays = dict[str, Any]
"""Arrays by their name in `Plan`."""


@dataclass(frozen=True)
class Given:
    """Ids of products (p,), the id of each one's advertiser (p,), and the (department, leaf) that it is wanted for.

    Raises BadDataError without products, or when the three differ in length.
    """

    products: Sequence[str]
    advertisers: Sequence[str]
    wanted: Sequence[tuple[str, str]]

    def __post_init__(self) -> None:
        if not self.products or not len(self.products) == len(self.advertisers) == len(self.wanted):
            sizes = f"{len(self.products)} products, {len(self.advertisers)} advertisers, {len(self.wanted)} interests"
            raise BadDataError(f"expected an advertiser and an interest for each of at least one product, got {sizes}")

    def leaves(self) -> list[tuple[str, str]]:
        """The distinct (department, leaf) pairs in order, as a plan numbers them: (l,)."""
        return sorted(set(self.wanted))


def plan_on(config: Config, given: Given) -> Plan:
    """The plan of a log of `config.users` people on a given catalogue, with neither bots, canaries nor campaigns.

    Without effect are the config's sizes of the catalogue, of its tree and what it says of bots and canaries. The
    larger a leaf, the more people want it: by the root of its number of products. Some products come late, but never
    all of a leaf; an advertiser comes with its first product.
    """
    rng = generator(config.seed, "given")
    names, owner = np.unique(np.array(given.advertisers), return_inverse=True)
    sizes = {"products": len(given.products), "advertisers": len(names), "campaigns": 0, "bots": 0.0, "canaries": 0}
    config = config.model_copy(update=sizes)
    tree, leaf = _tree(given)
    order = np.lexsort((rng.permutation(len(leaf)), leaf)).astype(np.int32)
    day = arrivals(len(leaf), config, rng)
    day[order[np.flatnonzero(np.diff(leaf[order], prepend=-1))]] = 0  # no leaf is ever empty
    shelf: Arrays = {"product_leaf": leaf, "product_advertiser": owner.astype(np.int32), "product_day": day}
    sellers = _sellers(shelf, tree["department"], len(names))
    none: Arrays = dict.fromkeys(("campaign_advertiser", "campaign_day", "campaign_end", "targets", "popular"), _none())
    return Plan(
        config=config,
        product_price=np.full(len(leaf), np.nan, np.float32),  # the catalogue names none, and none is made up
        product_order=order,
        names={"p": pa.array(given.products), "a": pa.array(names.tolist())},
        source=SOURCE,
        **_people(config, tree, rng),
        **{name: tree[name] for name in ("leaf_weight", "tickets", "first_ticket", "num_tickets")},
        **shelf,
        **sellers,
        **none,
    )


def _tree(given: Given) -> tuple[Arrays, Numbers]:
    """Department, weight and tickets of each leaf, and the leaf of each product (p,)."""
    leaves = given.leaves()
    number = {pair: place for place, pair in enumerate(leaves)}
    leaf = np.array([number[pair] for pair in given.wanted], np.int32)
    department = np.unique([name for name, _ in leaves], return_inverse=True)[1].astype(np.int32)
    weight = np.sqrt(np.bincount(leaf))
    each = np.maximum(weight.round().astype(np.int64), 1)
    num_tickets = np.bincount(department, each).astype(np.int32)
    tree: Arrays = {
        "department": department,
        "leaf_weight": weight / weight.sum(),
        "tickets": np.repeat(np.arange(len(leaves), dtype=np.int32), each),
        "num_tickets": num_tickets,
        "first_ticket": (np.cumsum(num_tickets) - num_tickets).astype(np.int32),
    }
    return tree, leaf


def _sellers(shelf: Arrays, department: Numbers, count: int) -> Arrays:
    """Each advertiser's first day and, of the product that came then, the department; it runs no campaign."""
    by_day = np.lexsort((shelf["product_day"], shelf["product_advertiser"]))
    first = by_day[np.searchsorted(shelf["product_advertiser"][by_day], np.arange(count))]
    return {
        "advertiser_day": shelf["product_day"][first],
        "advertiser_department": department[shelf["product_leaf"][first]],
        "advertiser_campaign": np.full(count, -1, np.int32),
    }


def _people(config: Config, tree: Arrays, rng: np.random.Generator) -> Arrays:
    home = rng.choice(len(tree["leaf_weight"]), config.users, p=tree["leaf_weight"])
    return {
        "user_department": tree["department"][home],
        "user_day": arrivals(config.users, config, rng),
        "user_order": rng.permutation(np.arange(config.users, dtype=np.int32)),
        "bots": _none(),
    }


def _none() -> Numbers:
    return np.zeros(0, np.int32)
