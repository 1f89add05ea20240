"""Gowalla check-ins in the 10-core split of NGCF and LightGCN, 10 % of train held out as valid by LightGCN++.

Cho et al., KDD 2011 (SNAP loc-gowalla); no licence stated, research use. Files train.txt, valid.txt, test.txt: one line
a user, "user item item ...". No time and no order: each part lies at one moment, and results are counted on sets. To
compare with LightGCN's figures train on train and valid; to compare with LightGCN++, choose on valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from data.context import RunContext
from data.engine import Engine
from data.errors import BadDataError
from data.schema import MICROS_PER_DAY
from data.sources import published, texts
from data.sources.published import TEST_FROM, VALID_FROM, Published

_MOMENTS = {"train": VALID_FROM - MICROS_PER_DAY, "valid": VALID_FROM, "test": TEST_FROM}


class Settings(published.Folder):
    """Where the set lies. Its one behaviour, a check-in, counts as a purchase."""

    name: ClassVar[str] = "gowalla"
    time_kind: ClassVar[str] = "none"


def identity(settings: Settings) -> list[str]:
    """Name and sha256 of each unpacked file."""
    return texts.identity(settings.root, [f"{part}.txt" for part in _MOMENTS])


def load(engine: Engine, settings: Settings, ctx: RunContext) -> dict[str, Any]:
    """Fill the contract's tables; returns rows and first time of each part. Raises BadDataError for other files."""
    return published.load(engine, read(settings), settings.name, ctx)


def read(settings: Settings) -> Published:
    """The set as published; raises BadDataError for other files."""
    columns: dict[str, list[Any]] = {name: [] for name in ("user_id", "product_id", "ts", "part")}
    for part, moment in _MOMENTS.items():
        for user, items in lines(texts.read(settings.root, f"{part}.txt"), f"{part}.txt"):
            columns["user_id"] += [user] * len(items)
            columns["product_id"] += items
            columns["ts"] += [moment] * len(items)
            columns["part"] += [part] * len(items)
    return Published(published.interactions(**columns, event_type="purchase"))


def lines(text: str, name: str) -> Iterator[tuple[str, list[str]]]:
    """User and items of each line "user item item ..."; raises BadDataError when a user has two lines."""
    seen: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        user, *items = line.split() or [""]
        if not user or user in seen:
            raise BadDataError(f"{name}, line {number}: expected one line a user, got {line[:60]!r}")
        seen.add(user)
        yield user, items
