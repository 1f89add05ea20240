"""Amazon reviews 2014, 5-core, in the leave-one-out form of S3-Rec, P5 and TIGER: Beauty, Sports, Toys.

McAuley lab (UCSD); files of Zhou et al., CIKM 2020: X.txt ("user item item ..." in time order, ids from 1) and
X_item2attributes.json (fine category ids of each item). Research use, no licence stated. Order only, no clock, no text.
The category ids of an item are a set, not a path from coarse to fine (an id has no one parent), so they are attributes.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from data.context import RunContext
from data.engine import Engine
from data.errors import BadDataError
from data.sources import published, texts
from data.sources.gowalla import lines
from data.sources.published import Published

_FILES = {"beauty": "Beauty", "sports": "Sports_and_Outdoors", "toys": "Toys_and_Games"}


class Settings(published.Folder):
    """Where the sets lie, and which is read. A review counts as a purchase."""

    subset: Literal["beauty", "sports", "toys"] = Field(description="which of the sets in the folder is read")
    time_kind: ClassVar[str] = "order"

    @property
    def name(self) -> str:
        """Name of the set, kept in every event's `source`."""
        return f"amazon-{self.subset}"


def identity(settings: Settings) -> list[str]:
    """Name and sha256 of each unpacked file."""
    return texts.identity(settings.root, _names(settings))


def load(engine: Engine, settings: Settings, ctx: RunContext) -> dict[str, Any]:
    """Fill the contract's tables; returns rows and first time of each part. Raises BadDataError for other files."""
    return published.load(engine, read(settings), settings.name, ctx)


def read(settings: Settings) -> Published:
    """The set as published; raises BadDataError for other files."""
    sequences, attributes = _names(settings)
    rows = published.leave_one_out(dict(lines(texts.read(settings.root, sequences), sequences)))
    described = texts.read_json(settings.root, attributes)
    return Published(rows, published.catalogue([_product(*entry) for entry in described.items()]))


def _names(settings: Settings) -> tuple[str, str]:
    stem = _FILES[settings.subset]
    return f"{stem}.txt", f"{stem}_item2attributes.json"


def _product(item: str, categories: Any) -> dict[str, Any]:
    if not isinstance(categories, list):
        raise BadDataError(f"item {item}: expected a list of category ids, got {str(categories)[:60]}")
    return {"product_id": item, "attributes": [(f"category {name}", "yes") for name in sorted(set(categories))]}
