"""Amazon reviews, Industrial & Scientific, 5-core with item text, in the leave-one-out form of LC-Rec and LETTER.

McAuley lab (UCSD). Scientific.inter.json is {user: [item, ...] in time order}, ids from 0; Scientific.item.json is
{item: {title, description, brand, categories}}. Research use; the text is Amazon's and its sellers'. Order only, no
clock. A brand counts as the advertiser. Levels of a category are separated by a comma; a comma and a space belong to a
name ("Hydraulics, Pneumatics & Plumbing").
"""

from __future__ import annotations

import html
import re
from typing import Any, ClassVar

from data.context import RunContext
from data.engine import Engine
from data.errors import BadDataError
from data.sources import published, texts
from data.sources.published import Published

_INTERACTIONS, _ITEMS = "Scientific.inter.json", "Scientific.item.json"
_FIELDS = ("title", "description", "brand", "categories")
_LEVEL = re.compile(r",(?! )")


class Settings(published.Folder):
    """Where the set lies. A review counts as a purchase."""

    name: ClassVar[str] = "amazon-scientific"
    time_kind: ClassVar[str] = "order"


def identity(settings: Settings) -> list[str]:
    """Name and sha256 of each unpacked file."""
    return texts.identity(settings.root, [_INTERACTIONS, _ITEMS])


def load(engine: Engine, settings: Settings, ctx: RunContext) -> dict[str, Any]:
    """Fill the contract's tables; returns rows and first time of each part. Raises BadDataError for other files."""
    return published.load(engine, read(settings), settings.name, ctx)


def read(settings: Settings) -> Published:
    """The set as published; raises BadDataError for other files."""
    rows = published.leave_one_out(texts.read_json(settings.root, _INTERACTIONS))
    items = texts.read_json(settings.root, _ITEMS)
    return Published(rows, published.catalogue([_product(*entry) for entry in items.items()]))


def _product(item: str, text: Any) -> dict[str, Any]:
    if not isinstance(text, dict) or any(not isinstance(text.get(name), str) for name in _FIELDS):
        raise BadDataError(f"{_ITEMS}: item {item}: expected texts {', '.join(_FIELDS)}, got {str(text)[:60]}")
    title, description, brand, categories = (html.unescape(text[name]).strip() or None for name in _FIELDS)
    path = [level.strip() for level in _LEVEL.split(categories or "") if level.strip()]
    return {
        "product_id": item,
        "advertiser_id": brand,
        "title": title,
        "description": description,
        "category": path or None,
    }
