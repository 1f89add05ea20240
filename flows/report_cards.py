"""Cards of people, products and advertisers: a name, facts, the bag of meaning, and what happened behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow.compute as pc

from data.artifacts import ArtifactRef
from flows.report_bags import Row, bag_in_words, shown_type, title_of
from flows.report_map import Interest

Bags = Mapping[str, list[Row]]
Card = dict[str, Any]

_PAST = {"purchase": "Bought", "conversion": "Converted on", "cart": "Put in the cart", "click": "Clicked"}
_LEADING = 8


def owners(index: ArtifactRef) -> dict[str, str | None]:
    """The advertiser of each indexed product, None where there is none."""
    table = index.table("entities_product.parquet", ["entity_id", "advertiser_id"])
    return dict(zip(table["entity_id"].to_pylist(), table["advertiser_id"].to_pylist(), strict=True))


def sold(owner: Mapping[str, str | None], bought: Counter[str]) -> Counter[str]:
    """Events by advertiser, summed over its products."""
    total: Counter[str] = Counter()
    for product, advertiser in owner.items():
        if advertiser is not None and bought[product]:
            total[advertiser] += bought[product]
    return total


def leading_products(
    advertisers: Iterable[str], owner: Mapping[str, str | None], bought: Counter[str]
) -> dict[str, list[str]]:
    """The most bought products of each of `advertisers`, at most eight."""
    leading: dict[str, list[str]] = {advertiser: [] for advertiser in advertisers}
    for product in sorted(owner, key=lambda product: (-bought[product], product)):
        mine = leading.get(owner[product] or "")
        if mine is not None and len(mine) < _LEADING:
            mine.append(product)
    return leading


class CardWriter:
    """Makes cards. `rows` is the catalogue of every product that one of them may name, `summary` that of the events."""

    def __init__(
        self, events: ArtifactRef, interests: Sequence[Interest], rows: Mapping[str, Row], summary: Row
    ) -> None:
        self.events, self.rows, self.event_type = events, rows, shown_type(summary)
        self.clock = summary["time_kind"] == "clock"
        self.place = {interest["id"]: index for index, interest in enumerate(interests)}
        self.labels = {interest["id"]: interest["label"] for interest in interests}

    def users(self, bags: Bags, counts: Counter[str], past: Mapping[str, Sequence[tuple[str, str, int]]]) -> list[Card]:
        """People, with their attributes and the last events that the bag could know."""
        known = self._known("users.parquet", "user_id", bags)
        cards = []
        for user, bag in bags.items():
            attributes = known.get(user, {}).get("attributes") or []
            card = self._card(user, f"Person {user}", bag, counts)
            card["facts"] = [*(f"{name.replace('_', ' ')}: {value}" for name, value in attributes), *card["facts"]]
            lines = [
                [day if self.clock else "", title_of(product, self.rows), times] for day, product, times in past[user]
            ]
            before = f", before {card['bag']['as_of']}" if self.clock else ""
            heading = f"{_PAST.get(self.event_type, 'Seen')} last{before}"
            cards.append(card | {"events": {"heading": heading, "rows": lines}})
        return cards

    def products(self, bags: Bags, counts: Counter[str]) -> list[Card]:
        """Products, with category, brand and price."""
        mine = {product: self.rows.get(product, {}) for product in bags}
        brands = self._known(
            "advertisers.parquet", "advertiser_id", {row.get("advertiser_id") or "" for row in mine.values()}
        )
        cards = []
        for product, bag in bags.items():
            card = self._card(product, title_of(product, self.rows), bag, counts)
            brand = brands.get(mine[product].get("advertiser_id") or "", {}).get("name")
            price = mine[product].get("price")
            facts = [
                " › ".join(mine[product].get("category") or []),
                f"by {brand}" if brand else "",
                "" if price is None else f"price {price:,.2f}",
            ]
            cards.append(card | {"facts": [*filter(None, facts), *card["facts"]]})
        return cards

    def advertisers(self, bags: Bags, counts: Counter[str], leading: Mapping[str, Sequence[str]]) -> list[Card]:
        """Advertisers, with their vertical and leading products."""
        known = self._known("advertisers.parquet", "advertiser_id", bags)
        cards = []
        for advertiser, bag in bags.items():
            row = known.get(advertiser, {})
            card = self._card(advertiser, row.get("name") or advertiser, bag, counts)
            lines = [["", title_of(product, self.rows), 1] for product in leading[advertiser]]
            facts = [*filter(None, [row.get("vertical")]), *card["facts"]]
            cards.append(card | {"facts": facts, "events": {"heading": "Its leading products", "rows": lines}})
        return cards

    def _card(self, entity: str, name: str, bag: Sequence[Row], counts: Counter[str]) -> Card:
        amount = f"{counts[entity]:,} {self.event_type.replace('_', ' ')}{'' if counts[entity] == 1 else 's'}"
        broad = self.labels.get(bag[0]["primitive_id"], bag[0]["primitive_id"])
        words = bag_in_words(bag, self.place, self.labels)
        return {"id": entity, "name": name, "facts": [amount], "bag": words, "option": f"{name} · {broad} · {amount}"}

    def _known(self, name: str, column: str, ids: Iterable[str]) -> dict[str, Row]:
        wanted = pc.field(column).isin(sorted(ids))
        return {row[column]: row for row in self.events.table(name, filters=wanted).to_pylist()}
