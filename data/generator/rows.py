"""Rows of the log as numbers, before they become a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data.generator.plan import Plan
from data.generator.strings import entities, labels
from data.schema import EVENT_TYPES, EVENTS, MICROS_PER_DAY

KIND = {name: code for code, name in enumerate(EVENT_TYPES)}
_SURFACES = ("feed", "search", "store")
_PAID = [KIND["purchase"], KIND["conversion"]]


@dataclass(frozen=True)
class Rows:
    """Events as arrays (n,): numbers of entities (-1: none), `kind` in EVENT_TYPES, times [us], `position` and
    `request` (-1: none), `name` (-1: named by its place in the slice, else its own number in the slice)."""

    user: NDArray[np.int32]
    product: NDArray[np.int32]
    advertiser: NDArray[np.int32]
    kind: NDArray[np.int8]
    ts: NDArray[np.int64]
    known_at: NDArray[np.int64]
    position: NDArray[np.int32]
    request: NDArray[np.int32]
    name: NDArray[np.int32]

    def take(self, index: NDArray[Any]) -> Rows:
        """The rows at `index` (positions or a mask)."""
        return Rows(*(getattr(self, field.name)[index] for field in fields(self)))


def rows(
    plan: Plan,
    user: NDArray[np.int32],
    product: NDArray[np.int32],
    kind: NDArray[np.int8] | int,
    ts: NDArray[np.int64],
    **given: NDArray[Any],
) -> Rows:
    """Rows of events on products; what is not `given` is: their owner, known at once, nothing else."""
    none = np.full(len(user), -1, np.int32)
    usual: dict[str, NDArray[Any]] = {
        "advertiser": plan.product_advertiser[product],
        "known_at": ts,
        "position": none,
        "request": none,
    }
    kinds = np.full(len(user), kind, np.int8) if isinstance(kind, int) else kind
    return Rows(user=user, product=product, kind=kinds, ts=ts, **{**usual, "name": none, **given})


def concat(parts: Sequence[Rows]) -> Rows:
    """Parts one after the other."""
    return Rows(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Rows)))


def in_time_order(found: Rows) -> Rows:
    """Rows by time; those of equal time stay as they are. Sorts one integer of time and place: faster than argsort."""
    if not len(found.ts):
        return found
    bits = len(found.ts).bit_length()
    key = ((found.ts - found.ts.min()) << bits) | np.arange(len(found.ts))
    key.sort()
    return found.take(key & ((1 << bits) - 1))


def table(plan: Plan, found: Rows, made: NDArray[np.int64]) -> pa.Table:
    """Rows as a table of schema EVENTS, named after the day and slice they were `made` in: day * slices + slice."""
    config, count = plan.config, len(found.ts)
    places = [made // config.slices, made % config.slices]
    number = np.where(found.name < 0, np.arange(count), found.name)
    event = _event_ids(places, number, found.name >= 0)
    campaign = plan.campaign_of(found.advertiser, (found.ts - config.first_micros) // MICROS_PER_DAY)
    price = plan.product_price[found.product]
    paid = np.isin(found.kind, _PAID) & ~np.isnan(price)
    asked = found.request >= 0
    request = np.where(asked, found.request, 0)
    columns = {
        "event_id": event,
        "user_id": entities("u", found.user, config.users),
        "product_id": _ids(plan, "p", found.product, config.products),
        "advertiser_id": _ids(plan, "a", found.advertiser, config.advertisers),
        "campaign_id": entities("c", campaign, max(config.campaigns, 1)),
        "event_type": pa.array(EVENT_TYPES).take(pa.array(found.kind)),
        "ts": pa.array(found.ts),
        "known_at": pa.array(found.known_at),
        "value": pa.array(price, mask=~paid),
        "surface": pa.array(_SURFACES).take(pa.array(request % len(_SURFACES), mask=~asked)),
        "position": pa.array(found.position, mask=found.position < 0),
        "request_id": labels("r", *places, request // 10_000, request % 10_000, valid=asked),
        "sample_prob": pa.array(np.ones(count, np.float32)),
        "propensity": pa.nulls(count, pa.float32()),
        "source": pa.array([plan.source]).take(pa.array(np.zeros(count, np.int8))),
    }
    return pa.Table.from_arrays(list(columns.values()), schema=EVENTS)


def _ids(plan: Plan, letter: str, numbers: NDArray[np.int32], count: int) -> pa.Array:
    """Ids of entities (n,), null for -1: those of a given catalogue, or made from the numbers."""
    given = plan.names.get(letter)
    return entities(letter, numbers, count) if given is None else given.take(pa.array(numbers, mask=numbers < 0))


def _event_ids(places: list[NDArray[np.int64]], number: NDArray[Any], own: NDArray[np.bool_]) -> pa.Array:
    """Ids that sort by place in the slice; rows with a name of their own come after those of the same time."""
    return labels("e", *places, number // 10_000 + np.where(own, 5_000, 0), number % 10_000)
