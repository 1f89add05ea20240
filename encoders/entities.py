"""The entities of the catalogue with their texts and attributes, each distinct text and record held once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from data.artifacts import ArtifactRef
from data.categories import category_ids
from encoders.describe import (
    Facts,
    advertiser_text,
    category_text,
    leaf,
    product_facts,
    product_text,
    user_facts,
)

ENTITY_TYPES = ("product", "advertiser", "category", "user")
"""Entity types that have content, in the order their files are written."""

Row = Mapping[str, Any]
Key = TypeVar("Key", bound=Hashable)


class Distinct(Generic[Key]):
    """Items numbered as they come, each once; `ordered` renumbers them by a sort key, whatever order they came in."""

    def __init__(self) -> None:
        self._numbers: dict[Key, int] = {}

    def number(self, item: Key | None) -> int:
        """The item's provisional number; -1 for None."""
        return -1 if item is None else self._numbers.setdefault(item, len(self._numbers))

    def ordered(self, key: Callable[[Key], Any]) -> tuple[list[Key], NDArray[np.int32]]:
        """The items sorted by `key`, and the final row of every provisional number, with -1 for -1 at the end."""
        items = sorted(self._numbers, key=key)
        rows = np.full(len(items) + 1, -1, np.int32)
        rows[[self._numbers[item] for item in items]] = np.arange(len(items))
        return items, rows


@dataclass
class Entities:
    """Entities of one type, sorted by id.

    text_row, facts_row (-1: none) point into `Catalogue.texts` and `.facts`; `images` and `video` are paths as the
    catalogue gives them.
    """

    ids: list[str] = field(default_factory=list)
    category: list[str | None] = field(default_factory=list)
    owner: list[str | None] = field(default_factory=list)
    known: list[int] = field(default_factory=list)
    text: list[int] = field(default_factory=list)
    facts: list[int] = field(default_factory=list)
    images: list[tuple[str, ...]] = field(default_factory=list)
    video: list[str | None] = field(default_factory=list)
    text_row: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    facts_row: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))

    @property
    def known_at(self) -> NDArray[np.int64]:
        """When each row could first be read [us], int64 (n,)."""
        return np.array(self.known, np.int64)


@dataclass(frozen=True)
class Catalogue:
    """Entities by type, the distinct texts sorted, and the distinct attribute records sorted."""

    entities: dict[str, Entities]
    texts: list[str]
    facts: list[Facts]


def read_catalogue(events: ArtifactRef) -> Catalogue:
    """Products, advertisers, categories and users of an `events` artifact; memory grows with entities, not events."""
    texts: Distinct[str] = Distinct()
    facts: Distinct[Facts] = Distinct()
    found = {kind: Entities() for kind in ENTITY_TYPES}
    paths: dict[str, tuple[tuple[str, ...], int]] = {}

    def add(kind: str, identity: str, row: Row, text: str | None, record: Facts | None, category: str | None) -> None:
        into = found[kind]
        into.ids.append(identity)
        into.category.append(category)
        into.owner.append(row.get("advertiser_id"))
        into.known.append(row["known_at"])
        into.text.append(texts.number(text))
        into.facts.append(facts.number(record))
        into.images.append(tuple(dict.fromkeys(path for path in row.get("image") or () if path)))
        into.video.append(row.get("video") or None)

    for row in _rows(events, "products.parquet"):
        add("product", row["product_id"], row, product_text(row), product_facts(row), leaf(row["category"]))
        _note_paths(paths, row)
    for row in _rows(events, "advertisers.parquet"):
        add("advertiser", row["advertiser_id"], row, advertiser_text(row), None, row["vertical"])
    for identity, (names, known) in sorted(paths.items()):
        add("category", identity, {"known_at": known}, category_text(names), Facts(category=names), identity)
    for row in _rows(events, "users.parquet"):
        add("user", row["user_id"], row, None, user_facts(row), None)
    return _numbered(found, texts, facts)


def _rows(events: ArtifactRef, name: str) -> Iterator[Row]:
    """Rows of a table already sorted by its id."""
    for batch in events.batches(name):
        yield from batch.to_pylist()


def _note_paths(paths: dict[str, tuple[tuple[str, ...], int]], row: Row) -> None:
    names = tuple(name for name in row["category"] or () if name)
    for depth, identity in enumerate(category_ids(names), start=1):
        known = min(row["known_at"], paths[identity][1] if identity in paths else row["known_at"])
        paths[identity] = (names[:depth], known)


def _numbered(found: dict[str, Entities], texts: Distinct[str], facts: Distinct[Facts]) -> Catalogue:
    sorted_texts, text_rows = texts.ordered(lambda text: text)
    sorted_facts, facts_rows = facts.ordered(lambda f: (f.category, f.attributes, f.price is not None, f.price or 0.0))
    for entities in found.values():
        entities.text_row = text_rows[np.array(entities.text, np.int64)]
        entities.facts_row = facts_rows[np.array(entities.facts, np.int64)]
    return Catalogue(found, sorted_texts, sorted_facts)
