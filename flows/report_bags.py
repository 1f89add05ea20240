"""Bags of meaning in words: which entities the report shows, their interests by level, and what stands behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow.compute as pc

from data.artifacts import ArtifactRef
from data.parts import EVENT_PARTS
from data.schema import from_micros
from data.timegrid import TOKENS

Row = Mapping[str, Any]

_SHOWN = ("purchase", "conversion", "cart", "click", "view", "interested", "impression")
_CANDIDATES = 10  # entities looked at for each one shown, so that every coarse interest finds its own examples


def shown_type(summary: Row) -> str:
    """The event type that tells most about a person among those present: a purchase before a click."""
    present = {name for name, count in summary["counts"].items() if count}
    return next((name for name in _SHOWN if name in present), "purchase")


def activity(events: ArtifactRef, event_type: str) -> tuple[Counter[str], Counter[str]]:
    """Events of `event_type` by user and by product. Memory grows with users and products, not with events."""
    users: Counter[str] = Counter()
    products: Counter[str] = Counter()
    for batch in events.batches(EVENT_PARTS, ["user_id", "product_id", "event_type"]):
        kept = batch.filter(pc.equal(batch["event_type"], event_type))
        for column, counter in (("user_id", users), ("product_id", products)):
            for counted in pc.value_counts(kept[column].drop_null()).to_pylist():
                counter[counted["values"]] += counted["counts"]
    return users, products


def last_bags(tokens: ArtifactRef, entity_type: str, ids: Iterable[str]) -> dict[str, list[Row]]:
    """The newest token rows of each of `ids` that has any, ordered by level and rank."""
    wanted = (pc.field("entity_type") == entity_type) & pc.field("entity_id").isin(list(ids))
    columns = ["entity_id", "level", "primitive_id", "weight", "residual", "rank", "as_of"]
    bags: dict[str, list[Row]] = {}
    for row in tokens.table(TOKENS, columns, wanted).to_pylist():
        bag = bags.setdefault(row["entity_id"], [])
        if bag and bag[0]["as_of"] < row["as_of"]:
            bag.clear()
        if not bag or bag[0]["as_of"] == row["as_of"]:
            bag.append(row)
    for bag in bags.values():
        bag.sort(key=lambda row: (row["level"], row["rank"]))
    return bags


def choose(counts: Counter[str], tokens: ArtifactRef, entity_type: str, shown: int) -> dict[str, list[Row]]:
    """Up to `shown` busy entities with their bags: the busiest of each coarse interest in turn, fullest bag first."""
    ranked = sorted(counts, key=lambda entity: (-counts[entity], entity))
    bags = last_bags(tokens, entity_type, ranked[: _CANDIDATES * shown])
    by_interest: dict[str, list[str]] = {}
    for entity in ranked:
        if entity in bags:
            by_interest.setdefault(bags[entity][0]["primitive_id"], []).append(entity)
    turns = [(turn, queue[turn]) for queue in by_interest.values() for turn in range(len(queue))]
    turns.sort(key=lambda pair: pair[0])
    chosen = [entity for _, entity in turns[:shown]]
    chosen.sort(key=lambda entity: -len(bags[entity]))
    return {entity: bags[entity] for entity in chosen}


def bag_in_words(rows: Sequence[Row], place: Mapping[str, int], labels: Mapping[str, str]) -> dict[str, Any]:
    """A bag as the page needs it: `levels` with (interest position, weight) pairs and a residual, and one sentence."""
    levels: dict[int, dict[str, Any]] = {}
    for row in rows:
        level = levels.setdefault(
            row["level"], {"level": row["level"], "residual": round(row["residual"], 4), "tokens": []}
        )
        if row["primitive_id"] in place:
            level["tokens"].append([place[row["primitive_id"]], round(row["weight"], 4)])
    coarse = [row for row in rows if row["level"] == min(levels)]
    fine = [row for row in rows if row["level"] == max(levels)]
    names = [f"{labels.get(row['primitive_id'], row['primitive_id'])} ({row['weight']:.0%})" for row in coarse[:2]]
    sentence = f"Mostly {' and '.join(names)}"
    if len(levels) > 1:
        sentence += "; more precisely " + ", ".join(
            labels.get(row["primitive_id"], row["primitive_id"]) for row in fine[:3]
        )
    return {
        "levels": list(levels.values()),
        "sentence": sentence + ".",
        "as_of": from_micros(rows[0]["as_of"]).date().isoformat(),
    }


def catalogue(events: ArtifactRef, products: Iterable[str]) -> dict[str, Row]:
    """`product_id -> row` with title, category, image, price and advertiser of the asked products that exist."""
    columns = ["product_id", "title", "category", "image", "price", "advertiser_id"]
    wanted = pc.field("product_id").isin(sorted(set(products)))
    return {row["product_id"]: row for row in events.table("products.parquet", columns, wanted).to_pylist()}


def title_of(product_id: str, rows: Mapping[str, Row]) -> str:
    """The product's title, else its id."""
    return str((rows.get(product_id) or {}).get("title") or product_id)


def recent(
    events: ArtifactRef, until: Mapping[str, int], event_type: str, count: int
) -> dict[str, list[tuple[str, str, int]]]:
    """`user -> [(day, product_id, times)]`, newest first, at most `count`: what could be seen at `until[user]` [us].

    Memory grows with the events of the asked users only.
    """
    wanted = pc.field("user_id").isin(sorted(until)) & (pc.field("event_type") == event_type)
    wanted &= pc.field("product_id").is_valid()
    columns = ["user_id", "product_id", "ts", "known_at"]
    last: dict[str, dict[tuple[str, str], tuple[int, int]]] = {user: {} for user in until}
    for row in events.table(EVENT_PARTS, columns, wanted).to_pylist():
        if max(row["ts"] + 1, row["known_at"]) <= until[row["user_id"]]:
            bought = (from_micros(row["ts"]).date().isoformat(), row["product_id"])
            before, times = last[row["user_id"]].get(bought, (0, 0))
            last[row["user_id"]][bought] = (max(before, row["ts"]), times + 1)
    newest = {
        user: sorted(rows.items(), key=lambda item: (item[1], item[0]), reverse=True) for user, rows in last.items()
    }
    return {user: [(*bought, times) for bought, (_, times) in rows[:count]] for user, rows in newest.items()}
