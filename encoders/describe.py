"""What encoders read of catalogue rows: one text, and one record of attributes, an entity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from data.categories import category_ids


class Facts(NamedTuple):
    """Attributes of an entity: category path coarse to fine, (name, value) pairs in order, price (None: unknown)."""

    category: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    price: float | None = None


def product_text(row: Mapping[str, Any]) -> str | None:
    """Title, category names from fine to coarse, then description; None when the row has none of them.

    Left out are what tells a sentence encoder nothing or is said elsewhere: the product's own id, a trailing attribute
    value ("Kids Cereal 14.5 Oz"), a category that repeats the title. Fewer texts differ, and the title weighs more.
    """
    title = _without_attribute(row["title"] or "", dict(row["attributes"] or ()).values())
    title = _without_word(title, row["product_id"])
    names = [name for name in reversed(row["category"] or ()) if name and name.casefold() != title.casefold()]
    return _sentence([", ".join(name for name in (title, *names) if name), row["description"]])


def category_text(path: Iterable[str]) -> str:
    """The names of a category path from fine to coarse."""
    return ", ".join(reversed(list(path)))


def advertiser_text(row: Mapping[str, Any]) -> str | None:
    """Name (without the advertiser's own id), vertical and description; None when the row has none of them."""
    name = _without_word(row["name"] or "", row["advertiser_id"])
    return _sentence([", ".join(part for part in (name, row["vertical"]) if part), row["description"]])


def product_facts(row: Mapping[str, Any]) -> Facts | None:
    """Category, attributes and price of a product row; None when all are missing."""
    category = tuple(name for name in row["category"] or () if name)
    return _facts(Facts(category, _pairs(row["attributes"]), row["price"]))


def user_facts(row: Mapping[str, Any]) -> Facts | None:
    """Attributes of a user row; None when there are none."""
    return _facts(Facts(attributes=_pairs(row["attributes"])))


def leaf(path: Iterable[str] | None) -> str | None:
    """Id of the finest category of a path; None without one."""
    return next(reversed(category_ids(list(path or ()))), None)


def _facts(facts: Facts) -> Facts | None:
    return facts if facts != Facts() else None


def _pairs(attributes: Iterable[tuple[str, str]] | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in attributes or () if value))


def _sentence(parts: Iterable[str | None]) -> str | None:
    return ". ".join(part.strip() for part in parts if part and part.strip()) or None


def _without_attribute(title: str, values: Iterable[str | None]) -> str:
    for value in values:
        if value and title.casefold().endswith(" " + value.casefold()):
            return title[: -len(value)].strip()
    return title


def _without_word(text: str, word: str) -> str:
    return " ".join(part for part in text.split() if part != word)
