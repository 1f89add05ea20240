"""2,906 fashion products with photo, title, category path and attributes, and people who are simulated.

The catalogue is real: Myntra's photos in the Kaggle family "Fashion Product Images", subset Apparel and Footwear, as
products.csv and images_96x128.zip; the rights in the photos are unclear, for research use. The brand, guessed from the
title, counts as the advertiser. It has no log of what people did, so `data.generator` makes one up, and says so: every
event's `source` is "simulated" and the summary carries `simulated`. A simulated person shops for one gender in Apparel
or Footwear, for two product types at a time, which change; no figure on such a log says anything of real shoppers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from data import schema
from data.artifacts import sha256_file
from data.context import RunContext, derive_seed
from data.engine import Engine
from data.errors import BadDataError
from data.generator import log
from data.generator.config import Config
from data.generator.given import Given, plan_on
from data.generator.plan import Plan
from data.generator.strings import entities
from data.sources import pictures, published, texts
from data.sources.tables import read_table

_FILE = "products.csv"
_COLUMNS = ("product_id", "gender", "category", "sub_category", "product_type", "colour", "usage", "title")
_BRAND, _NO_BRAND = "brand_guess", "unbranded"
_COLD = 0.3
"""Share of products and people that come after the first day: what content alone can tell of is worth a look."""


class Settings(published.Folder):
    """Where the catalogue lies, which pictures are used, and how much is simulated on it."""

    pictures: str | None = Field(
        default="images_96x128.zip",
        pattern=r"^[A-Za-z0-9_.-]+\.zip$",
        description="zip of the pictures in the folder; none are used if unset",
    )
    users: int = Field(default=1_500, ge=10, lt=10**8, description="simulated people")
    events: int = Field(default=600_000, ge=1, description="expected simulated events of the whole log")
    days: int = Field(default=112, ge=2, le=9999, description="days of the log, from 2024-01-01 on")
    name: ClassVar[str] = "fashion-images, simulated events"
    time_kind: ClassVar[str] = "clock"
    simulated: ClassVar[bool] = True

    @property
    def archive(self) -> Path | None:
        """The zip of the pictures; None when none are used. Raises BadDataError when it is missing."""
        if self.pictures is None:
            return None
        if not (self.root / self.pictures).is_file():
            raise BadDataError(
                f"expected {self.pictures} in {self.root}, found none: correct `root`, or unset `pictures`"
            )
        return self.root / self.pictures


def identity(settings: Settings) -> list[str]:
    """Name and sha256 of the unpacked catalogue and of the zip of pictures."""
    archive = settings.archive
    images = [] if archive is None else [f"pictures:{sha256_file(archive)}"]
    return [*texts.identity(settings.root, [_FILE]), *images]


def unpack_media(settings: Settings, folder: Path) -> Path | None:
    """The folder below `folder` with the pictures that `image` names, unpacked if need be; None without pictures.

    Its name is the zip's sha256, so another zip has another folder. Raises BadDataError as `pictures.unpack` does.
    """
    archive = settings.archive
    return None if archive is None else pictures.unpack(archive, folder / sha256_file(archive)[:20])


def load(engine: Engine, settings: Settings, ctx: RunContext) -> dict[str, Any]:
    """Fill the contract's tables; returns counts of products with a picture and of interests that were planted.

    Time grows with the events, memory with the catalogue and a few slices of a day. Raises BadDataError for other
    files.
    """
    rows = catalogue(settings)
    given = given_of(rows)
    plan = plan_on(_sizes(settings, ctx), given)
    tables = {
        "simulated_events": pa.RecordBatchReader.from_batches(schema.EVENTS, _events(plan, ctx)),
        "given_products": _products(rows, plan),
        "given_advertisers": _advertisers(plan),
        "simulated_users": _users(plan),
    }
    for view, table in tables.items():
        engine.connection.register(view, table)
    engine.run("simulated")
    for view in tables:
        engine.connection.unregister(view)
    return {"pictures": sum(row["image"] is not None for row in rows), "interests": len(given.leaves())}


def catalogue(settings: Settings) -> list[dict[str, Any]]:
    """Rows of the catalogue with `advertiser_id` and `image`, by product id; raises BadDataError for other files."""
    columns = dict.fromkeys((*_COLUMNS, _BRAND), pa.string())
    rows: list[dict[str, Any]] = read_table(settings.root, _FILE, columns).sort_by("product_id").to_pylist()
    archive = settings.archive
    images = set() if archive is None else set(pictures.names(archive))
    for before, row in zip([None, *rows], rows, strict=False):
        _check(row, before)
        row["advertiser_id"] = row[_BRAND] or _NO_BRAND
        image = f"{row['product_id']}.jpg"
        row["image"] = [image] if image in images else None
    return rows


def given_of(rows: list[dict[str, Any]]) -> Given:
    """What people want: a product type for somebody (Men, Girls, ...), within what is worn by them."""
    wanted = [
        (f"{row['gender']} {row['category']}", f"{row['gender']} {row['sub_category']}: {row['product_type']}")
        for row in rows
    ]
    return Given([row["product_id"] for row in rows], [row["advertiser_id"] for row in rows], wanted)


def _sizes(settings: Settings, ctx: RunContext) -> Config:
    seed = derive_seed(ctx.seed, "events", "simulated")
    sizes = {"users": settings.users, "events": settings.events, "days": settings.days}
    return Config(**sizes, cold_share=_COLD, seed=seed)


def _check(row: Mapping[str, Any], before: Mapping[str, Any] | None) -> None:
    missing = [name for name in _COLUMNS if not (row[name] or "").strip()]
    if missing:
        raise BadDataError(f"{_FILE}: product {row['product_id']}: expected a text in {', '.join(missing)}, got none")
    if not row["product_id"].isdecimal() or not row["product_id"].isascii():
        raise BadDataError(f"{_FILE}: expected whole numbers as product_id, got {row['product_id'][:40]!r}")
    if before is not None and before["product_id"] == row["product_id"]:
        raise BadDataError(f"{_FILE}: expected every product once, got {row['product_id']} twice")


def _events(plan: Plan, ctx: RunContext) -> Iterator[pa.RecordBatch]:
    days = plan.config.days
    with ctx.progress.step(f"simulate {days} days", days, "days") as step:
        for day in range(days):
            for table in log.day(plan, day):
                yield from table.to_batches()
            step.advance()


def _products(rows: list[dict[str, Any]], plan: Plan) -> pa.Table:
    known = plan.known_at(plan.product_day).tolist()
    described = [
        {
            **{name: row[name] for name in ("product_id", "advertiser_id", "title", "image")},
            "category": [row["category"], row["sub_category"], row["product_type"]],
            "attributes": [(name, row[name]) for name in ("gender", "colour", "usage")],
            "first_seen": day,
            "known_at": day,
        }
        for row, day in zip(rows, known, strict=True)
    ]
    return pa.Table.from_pylist(described, schema.PRODUCTS)


def _advertisers(plan: Plan) -> pa.Table:
    known = pa.array(plan.known_at(plan.advertiser_day))
    columns = {"advertiser_id": plan.names["a"], "name": plan.names["a"], "known_at": known}
    return pa.table(columns)


def _users(plan: Plan) -> pa.Table:
    users = entities("u", np.arange(plan.config.users), plan.config.users)
    return pa.table({"user_id": users, "known_at": pa.array(plan.known_at(plan.user_day))})
