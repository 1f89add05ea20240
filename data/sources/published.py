"""What every published research set comes down to: interactions, each in a part of its split, and a catalogue.

A run and a benchmark read the same rows: `load` fills the contract's tables with them, `data.sources.splits` makes
arrays of them. In every set that has a split, time separates its parts (train, then valid, then test). Where the
files carry no clock, the times are made for just that: all of test lies at `TEST_FROM`, all of valid a day before it,
and an earlier place in a user's sequence is a day earlier each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationInfo, model_validator

from data import schema
from data.context import RunContext, StageConfig, execution
from data.engine import Engine
from data.errors import BadDataError
from data.schema import MICROS_PER_DAY

PARTS = ("train", "valid", "test")

TEST_FROM = 1_577_836_800_000_000
"""2020-01-01, where test lies in a set without a clock [us]."""
VALID_FROM = TEST_FROM - MICROS_PER_DAY

INTERACTIONS = pa.schema(
    [
        ("user_id", pa.string()),
        ("product_id", pa.string()),
        ("event_type", pa.string()),
        ("ts", pa.int64()),
        ("value", pa.float32()),
        ("part", pa.string()),
    ]
)
CATALOGUE = pa.schema(
    [schema.PRODUCTS.field(name) for name in ("product_id", "advertiser_id", "title", "description", "category")]
    + [schema.PRODUCTS.field("attributes")]
)
PEOPLE = pa.schema([schema.USERS.field("user_id"), schema.USERS.field("attributes")])

_FIRST, _LAST = 31_536_000, 7_258_118_400
_ID = "^(0|[1-9][0-9]{0,17})$"


class Folder(StageConfig):
    """Where the files of a published set lie."""

    root: Path = execution(
        ..., "folder with the files of the set under their published names; relative to the configuration file"
    )

    @model_validator(mode="before")
    @classmethod
    def _below_file(cls, values: Any, info: ValidationInfo) -> Any:
        if isinstance(values, dict) and "root" in values and info.context and "root" in info.context:
            return {**values, "root": Path(info.context["root"]) / values["root"]}
        return values


@dataclass(frozen=True)
class Published:
    """One set as published: rows of INTERACTIONS, and of CATALOGUE and PEOPLE for what is described.

    Raises BadDataError when ids are not whole numbers, a row or a description comes twice, or a user's product lies
    in two parts.
    """

    interactions: pa.Table
    catalogue: pa.Table = field(default_factory=CATALOGUE.empty_table)
    people: pa.Table = field(default_factory=PEOPLE.empty_table)

    def __post_init__(self) -> None:
        rows = self.interactions
        if not rows.num_rows:
            raise BadDataError("expected interactions, got none: are the files those of the set?")
        for name in ("user_id", "product_id", "event_type", "ts"):
            if rows[name].null_count:
                raise BadDataError(f"{name}: expected a value in every row, {rows[name].null_count:,} have none")
        for table, name in ((rows, "user_id"), (rows, "product_id"), (self.catalogue, "product_id")):
            odd = table.filter(pc.invert(pc.match_substring_regex(pc.fill_null(table[name], ""), _ID)))
            if odd.num_rows:
                raise BadDataError(f"{name}: expected whole numbers as in the published files, got {odd[name][0]}")
        pair = ["user_id", "product_id"]
        _distinct(rows, [*pair, "event_type", "ts"], rows.num_rows, "every interaction once")
        parts = rows.group_by([*pair, "part"]).aggregate([])
        _distinct(parts, pair, parts.num_rows, "a user's product in one part of the split only")
        _distinct(self.catalogue, ["product_id"], self.catalogue.num_rows, "every product described once")
        _distinct(self.people, ["user_id"], self.people.num_rows, "every user described once")


def _distinct(rows: pa.Table, columns: list[str], expected: int, rule: str) -> None:
    counted = rows.group_by(columns).aggregate([([], "count_all")])
    if counted.num_rows != expected:
        twice = counted.filter(pc.greater(counted["count_all"], 1)).slice(0, 1).to_pylist()[0]
        raise BadDataError(f"expected {rule}, got {twice}: these are not the published files")


def leave_one_out(sequences: Mapping[str, Sequence[Any]]) -> pa.Table:
    """INTERACTIONS of each user's products in order: the last is test, the last but one valid, the others train.

    Raises BadDataError for a user with fewer than three products.
    """
    columns: dict[str, list[Any]] = {name: [] for name in ("user_id", "product_id", "ts", "part")}
    for user, products in sequences.items():
        if not isinstance(products, list) or len(products) < 3:
            raise BadDataError(f"user {user}: expected a list of at least 3 products, got {str(products)[:60]}")
        count = len(products)
        columns["user_id"] += [user] * count
        columns["product_id"] += map(str, products)
        columns["ts"] += [TEST_FROM - age * MICROS_PER_DAY for age in range(count - 1, -1, -1)]
        columns["part"] += ["train"] * (count - 2) + ["valid", "test"]
    return interactions(**columns, event_type="purchase")


def micros(seconds: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times [us] of times [s since 1970 UTC]; raises BadDataError when one is missing or not between 1971 and 2200."""
    sensible = pc.fill_null(pc.and_(pc.greater(seconds, _FIRST), pc.less(seconds, _LAST)), False)
    if not pc.all(sensible).as_py():
        odd = seconds.filter(pc.invert(sensible))[0]
        raise BadDataError(f"expected times in seconds between 1971 and 2200, got {odd}")
    return pc.multiply(seconds, 1_000_000)


def interactions(**columns: Any) -> pa.Table:
    """A table of INTERACTIONS from columns; a single text is repeated, a missing column is null."""
    count = len(columns["user_id"])
    arrays = []
    for column in INTERACTIONS:
        value = columns.get(column.name)
        if value is None or isinstance(value, str):
            arrays.append(pa.repeat(pa.scalar(value, column.type), count))
        else:
            arrays.append(pa.array(value, column.type))
    return pa.Table.from_arrays(arrays, schema=INTERACTIONS)


def catalogue(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """A table of CATALOGUE from records; a missing entry is null."""
    return pa.Table.from_pylist([{name: row.get(name) for name in CATALOGUE.names} for row in rows], CATALOGUE)


def load(engine: Engine, published: Published, name: str, ctx: RunContext) -> dict[str, Any]:
    """Fill the contract's tables of `engine`; returns rows and first time [us] of each part of the whole split.

    What the set does not date (catalogue, people) counts as known from the start of its log.
    """
    given = {"interactions": published.interactions, "catalogue": published.catalogue, "people": published.people}
    with ctx.progress.step(f"read {name}", published.interactions.num_rows, "rows") as step:
        for view, table in given.items():
            engine.connection.register(view, table)
        engine.run("published", source=name)
        parts = {row.pop("part"): row for row in engine.records("published_parts")}
        for view in given:
            engine.connection.unregister(view)
        step.advance(published.interactions.num_rows)
    return {"parts": {part: parts[part] for part in PARTS if part in parts}}
