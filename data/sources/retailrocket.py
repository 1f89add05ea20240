"""RetailRocket, the 2,174 buyers of CML (WSDM 2022), KMCLR and KG-Mber: views, carts and purchases of one web shop.

Original data CC BY-NC-SA 4.0. Files events.csv (timestamp [s], user_id, item_id, event; 2015-05-03 to 2015-09-18) and
test.csv (user_id, item_id): one held-out purchase a user, a pair that no event of any kind shows. The files give a
held-out purchase no time; it lies at the midnight after the last event, so that a cut there is the published split.
Other users' events come after many a purchase's true time, so a claim about the future needs a cut within the log
instead. kg.txt is not read: its relations are undocumented and its ids not proven to be items.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from data.context import RunContext
from data.engine import Engine
from data.errors import BadDataError
from data.schema import MICROS_PER_DAY
from data.sources import published, texts
from data.sources.published import Published
from data.sources.tables import read_table

_EVENTS, _TEST = "events.csv", "test.csv"
_BEHAVIOURS = ("view", "cart", "purchase")


class Settings(published.Folder):
    """Where the set lies."""

    name: ClassVar[str] = "retailrocket"
    time_kind: ClassVar[str] = "clock"


def identity(settings: Settings) -> list[str]:
    """Name and sha256 of each unpacked file."""
    return texts.identity(settings.root, [_EVENTS, _TEST])


def load(engine: Engine, settings: Settings, ctx: RunContext) -> dict[str, Any]:
    """Fill the contract's tables; returns rows and first time of each part. Raises BadDataError for other files."""
    return published.load(engine, read(settings), settings.name, ctx)


def read(settings: Settings) -> Published:
    """The set as published; raises BadDataError for other files."""
    ids = {"user_id": pa.string(), "item_id": pa.string()}
    events = read_table(settings.root, _EVENTS, {"timestamp": pa.int64(), **ids, "event": pa.string()})
    held_out = read_table(settings.root, _TEST, ids)
    odd = set(pc.unique(events["event"]).to_pylist()) - set(_BEHAVIOURS)
    if odd:
        raise BadDataError(f"{_EVENTS}: expected events {', '.join(_BEHAVIOURS)}, got {sorted(map(str, odd))}")
    ts = published.micros(events["timestamp"])
    midnight = (pc.max(ts).as_py() // MICROS_PER_DAY + 1) * MICROS_PER_DAY
    train = _part(events, ts, events["event"], "train")
    test = _part(held_out, [midnight] * len(held_out), "purchase", "test")
    return Published(pa.concat_tables([train, test]))


def _part(rows: pa.Table, ts: Any, event_type: Any, part: str) -> pa.Table:
    ids = {"user_id": rows["user_id"], "product_id": rows["item_id"]}
    return published.interactions(**ids, ts=ts, event_type=event_type, part=part)
