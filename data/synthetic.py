"""A small seeded shop with a planted interest hierarchy, for tests and for trying the pipeline without data.

Each user has one coarse interest (a department) and two fine ones (types within it). Impressions and purchases
follow them, purchases repeat, some products arrive late and some events become known late.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from data import parts
from data.artifacts import OutputDir
from data.context import Metrics
from data.schema import (
    ADVERTISERS,
    CAMPAIGNS,
    EVENTS,
    MICROS_PER_DAY,
    PRODUCTS,
    QUARANTINE,
    USERS,
    to_micros,
)

START = datetime(2024, 1, 1, tzinfo=UTC)
TREE = {
    "Drinks": {"Coffee": ("Espresso Beans", "Ground Coffee"), "Tea": ("Green Tea", "Herbal Infusion")},
    "Pets": {"Dog": ("Dog Biscuits", "Chew Toy"), "Cat": ("Cat Litter", "Kitten Food")},
    "Garden": {"Plants": ("Rose Bush", "Tomato Seedling"), "Tools": ("Hand Trowel", "Pruning Shears")},
    "Bakery": {"Bread": ("Rye Loaf", "Sourdough Roll"), "Cakes": ("Chocolate Cake", "Apple Tart")},
}
"""Department > category > type: the category paths, and the interests planted in users."""

_ENTITIES = ("products", "advertisers", "campaigns", "users")
_STYLES = ("Organic", "Classic", "Family", "Premium", "Daily", "Mini", "Golden", "Rustic")
_LEAVES = tuple((dept, cat, leaf) for dept, cats in TREE.items() for cat, leaves in cats.items() for leaf in leaves)
_SHOWN = 6
_MINUTE = 60_000_000


def cuts(days: int = 120) -> tuple[datetime, datetime, datetime]:
    """T0, T1, T2 of a world of `days` days: 60 %, 80 % and 90 % of its length, at midnight."""
    first, second, third = (START + timedelta(days=days * tenths // 10) for tenths in (6, 8, 9))
    return first, second, third


def world(users: int = 60, products: int = 80, days: int = 120, seed: int = 0) -> dict[str, pa.Table]:
    """The contract's five tables by name, plus the planted truth.

    `user_interests` holds (user_id, department, type) with two rows a user; a product's truth is its category path.
    Equal arguments give equal tables. Time and memory grow with users * days.
    """
    rng = np.random.default_rng(seed)
    catalogue = _catalogue(products, days, rng)
    interests = {f"u{user:03d}": _interests(rng) for user in range(users)}
    campaigns = _campaigns(days)
    events = [row for user, wanted in interests.items() for row in _life(user, wanted, catalogue, days, rng)]
    events += [row for campaign in campaigns for row in _campaign_events(campaign, sorted(interests), rng)]
    truth = [(user, wanted[0][0], leaf[2]) for user, wanted in interests.items() for leaf in wanted]
    tables = {
        "events": _table(sorted(events, key=lambda row: (row["ts"], row["event_id"])), EVENTS),
        "products": _table(catalogue, PRODUCTS),
        "advertisers": _table(_advertisers(catalogue), ADVERTISERS),
        "campaigns": _table(campaigns, CAMPAIGNS),
        "users": _table([_user(user, index) for index, user in enumerate(interests)], USERS),
    }
    columns = [list(column) for column in zip(*truth, strict=True)]
    return {**tables, "user_interests": pa.table(columns, names=["user_id", "department", "type"])}


def write_csv(tables: dict[str, pa.Table], folder: Path) -> None:
    """Write a world as a foreign shop's files, shop_<table>.csv: its own column names and words, milliseconds."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, columns in _FOREIGN.items():
        with open(folder / f"shop_{name}.csv", "w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(columns)
            for row in tables[name].to_pylist():
                writer.writerow([_foreign(row, column) for column in columns.values()])


def write_events(tables: dict[str, pa.Table], out: OutputDir) -> Metrics:
    """Write a world as an `events` artifact; returns its summary."""
    events = tables["events"]
    counts = Counter(events["event_type"].to_pylist())
    rows = {"events": parts.write_events(out, [parts.in_order(events)])}
    for name in _ENTITIES:
        out.write_table(f"{name}.parquet", tables[name])
    out.write_table("quarantine.parquet", QUARANTINE.empty_table())
    summary = {
        "name": "synthetic",
        "time_kind": "clock",
        "first_ts": events["ts"][0].as_py(),
        "last_ts": events["ts"][-1].as_py(),
        "counts": dict(sorted(counts.items())),
        "rows": rows | {name: out.rows[f"{name}.parquet"] for name in _ENTITIES},
        "sample_prob": {name: {"min": 1.0, "max": 1.0} for name in sorted(counts)},
    }
    out.write_json("summary.json", summary)
    return summary


_FOREIGN = {
    "events": {
        "key": "event_id", "customer": "user_id", "sku": "product_id", "seller": "advertiser_id",
        "promo": "campaign_id", "what": "event_type", "at_ms": "ts", "logged_ms": "known_at",
        "amount": "value", "place": "surface", "session": "request_id",
    },
    "products": {
        "sku": "product_id", "seller": "advertiser_id", "name": "title", "path": "category",
        "style": "attributes.style", "listed": "known_at",
    },
    "advertisers": {"seller": "advertiser_id", "name": "name", "branch": "vertical"},
    "campaigns": {"promo": "campaign_id", "seller": "advertiser_id", "name": "name", "from": "start", "to": "end"},
    "users": {"customer": "user_id", "region": "attributes.region"},
}  # fmt: skip
WORDS = {"shown": "impression", "bought": "purchase", "redeemed": "conversion"}
"""The foreign shop's words for event types."""

_MILLIS = ("ts", "known_at", "start", "end")


def _foreign(row: dict[str, Any], column: str) -> Any:
    if column.startswith("attributes."):
        return dict(row["attributes"])[column.removeprefix("attributes.")]
    value = row[column]
    if column == "event_type":
        return next(word for word, ours in WORDS.items() if ours == value)
    if column == "category":
        return " > ".join(value)
    return value // 1000 if column in _MILLIS else value


def _table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schema)


def _catalogue(count: int, days: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Products in turn over the leaves; one in eight appears only half-way through the log."""
    start = to_micros(START)
    rows = []
    for index in range(count):
        leaf = _LEAVES[index % len(_LEAVES)]
        style = _STYLES[int(rng.integers(len(_STYLES)))]
        known_at = start + (days // 2 * MICROS_PER_DAY if index % 8 == 7 else 0)
        title = f"{style} {leaf[2]} No {index}"
        # Each department has two advertisers, so that an advertiser stands for a coarse interest.
        advertiser = f"a{list(TREE).index(leaf[0])}{index // len(_LEAVES) % 2}"
        rows.append(
            {
                "product_id": f"p{index:03d}",
                "advertiser_id": advertiser,
                "title": title,
                "category": list(leaf),
                "attributes": [("style", style)],
                "price": float(rng.integers(1, 40)) / 2,
                "first_seen": known_at,
                "known_at": known_at,
            }
        )
    return rows


def _advertisers(catalogue: list[dict[str, Any]]) -> list[dict[str, Any]]:
    vertical = {row["advertiser_id"]: row["category"][0] for row in catalogue}
    return [
        {"advertiser_id": name, "name": f"{dept} House {name[-1]}", "vertical": dept, "known_at": to_micros(START)}
        for name, dept in sorted(vertical.items())
    ]


def _campaigns(days: int) -> list[dict[str, Any]]:
    start = to_micros(START)
    length = max(days // 4, 1) * MICROS_PER_DAY
    return [
        {
            "campaign_id": f"c{index}",
            "advertiser_id": f"a{index}0",
            "name": f"{dept} Weeks",
            "kind": "coupon",
            "start": start + index * length,
            "end": start + (index + 1) * length,
            "known_at": start + index * length,
        }
        for index, dept in enumerate(TREE)
    ]


def _user(user: str, index: int) -> dict[str, Any]:
    region = ("north", "south", "west")[index % 3]
    return {"user_id": user, "attributes": [("region", region)], "known_at": to_micros(START)}


def _interests(rng: np.random.Generator) -> list[tuple[str, str, str]]:
    department = list(TREE)[int(rng.integers(len(TREE)))]
    leaves = [leaf for leaf in _LEAVES if leaf[0] == department]
    return [leaves[int(pick)] for pick in rng.choice(len(leaves), size=2, replace=False)]


def _life(
    user: str, wanted: list[tuple[str, str, str]], catalogue: list[dict[str, Any]], days: int, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """All events of one user: a visit about every third day, six products shown, some of them bought."""
    leaves = [tuple(product["category"]) for product in catalogue]
    fine = np.array([leaf in wanted for leaf in leaves])
    coarse = np.array([leaf[0] == wanted[0][0] for leaf in leaves])
    known_at = np.array([product["known_at"] for product in catalogue])
    buys = np.where(fine, 0.2, np.where(coarse, 0.06, 0.01))
    shown_weight = np.where(fine, 4.0, np.where(coarse, 2.0, 1.0))
    habit: dict[int, int] = defaultdict(int)
    rows = []
    for visit in range(max(1, days // 3)):
        offset = int(rng.integers(3 * 24 * 60)) * _MINUTE + 3 * visit * MICROS_PER_DAY
        ts = to_micros(START) + offset
        weight = shown_weight * (known_at < ts)
        for favourite, times in habit.items():
            weight[favourite] *= 1 + min(times, 2)
        count = min(_SHOWN, int(np.count_nonzero(weight)))
        shown = rng.choice(len(catalogue), size=count, replace=False, p=weight / weight.sum())
        for position, (product, luck) in enumerate(zip(shown.tolist(), rng.random(count), strict=True)):
            request = f"{user}-{visit}"
            rows.append(_event("i", user, catalogue[product], "impression", ts, request, position))
            if luck < buys[product] + 0.05 * min(habit[product], 2):
                habit[product] += 1
                late = 60 * _MINUTE if rng.random() < 0.1 else 0
                rows.append(_event("t", user, catalogue[product], "purchase", ts + 5 * _MINUTE, request, None, late))
    return rows


def _event(
    prefix: str,
    user: str,
    product: dict[str, Any],
    kind: str,
    ts: int,
    request: str,
    position: int | None,
    late: int = 0,
) -> dict[str, Any]:
    return {
        "event_id": f"{prefix}-{request}-{product['product_id']}",
        "user_id": user,
        "product_id": product["product_id"],
        "advertiser_id": product["advertiser_id"],
        "event_type": kind,
        "ts": ts,
        "known_at": ts + late,
        "value": product["price"] if kind == "purchase" else None,
        "surface": "store",
        "position": position,
        "request_id": request,
        "sample_prob": 1.0,
        "source": "synthetic",
    }


def _campaign_events(campaign: dict[str, Any], users: list[str], rng: np.random.Generator) -> list[dict[str, Any]]:
    """Every second user receives a campaign; one in four of those redeems it on a later day."""
    rows = []
    for user in users:
        if rng.random() < 0.5:
            continue
        shared = {
            "user_id": user,
            "advertiser_id": campaign["advertiser_id"],
            "campaign_id": campaign["campaign_id"],
            "surface": "campaign:coupon",
            "request_id": f"{campaign['campaign_id']}-{user}",
            "sample_prob": 1.0,
            "source": "synthetic",
        }
        sent, redeemed = campaign["start"], campaign["start"] + int(rng.integers(1, 14)) * MICROS_PER_DAY
        name = shared["request_id"]
        rows.append({**shared, "event_id": f"r-{name}", "event_type": "impression", "ts": sent, "known_at": sent})
        if rng.random() < 0.25 and redeemed < campaign["end"]:
            rows.append(
                {**shared, "event_id": f"v-{name}", "event_type": "conversion", "ts": redeemed, "known_at": redeemed}
            )
    return rows
