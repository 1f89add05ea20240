"""The published split of a research set as arrays, for benchmarks: who had what, in order, in which part.

Users and items are numbered by their published ids in numeric order. A set is the one that a run reads (the same
reader makes both), so a figure of a benchmark and of a run are about the same rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data.errors import UsageError, nearest
from data.schema import EVENT_TYPES
from data.sources import amazon_instruments, amazon_s3rec, amazon_scientific, gowalla, movielens, retailrocket
from data.sources.published import CATALOGUE, PARTS, Published

SETS: dict[str, tuple[ModuleType, Mapping[str, str]]] = {
    "gowalla": (gowalla, {}),
    "amazon-beauty": (amazon_s3rec, {"subset": "beauty"}),
    "amazon-sports": (amazon_s3rec, {"subset": "sports"}),
    "amazon-toys": (amazon_s3rec, {"subset": "toys"}),
    "amazon-instruments": (amazon_instruments, {}),
    "amazon-scientific": (amazon_scientific, {}),
    "retailrocket": (retailrocket, {}),
    "movielens-100k": (movielens, {}),
}
"""Reader of each set by name, and what it is told beside the folder."""


@dataclass(frozen=True)
class Part:
    """Interactions of one part by user: user u owns positions offsets[u] to offsets[u + 1] of the other arrays.

    Within a user they are in order of (time, item, event type); without an order (Gowalla) that is by item.
    """

    offsets: NDArray[np.int64]
    """(users + 1,)."""
    items: NDArray[np.int64]
    """Item numbers (n,)."""
    event_types: NDArray[np.int8]
    """Codes in EVENT_TYPES (n,)."""
    ts: NDArray[np.int64]
    """Time (n,) [us]; made from the order where the set has no clock."""
    values: NDArray[np.float32]
    """Stars (n,); NaN where the set has none."""

    def of(self, user: int) -> NDArray[np.int64]:
        """Items of one user (a view), in order."""
        return self.items[self.offsets[user] : self.offsets[user + 1]]


@dataclass(frozen=True)
class Split:
    """A published set: external ids by number, its three parts, and what is said about item i in row i of `items`.

    A part is empty when the set has none (valid of RetailRocket; MovieLens comes without any split and is all train).
    """

    name: str
    time_kind: str
    user_ids: tuple[str, ...]
    item_ids: tuple[str, ...]
    train: Part
    valid: Part
    test: Part
    items: pa.Table
    """Columns of CATALOGUE."""

    @property
    def num_users(self) -> int:
        """Users of all parts."""
        return len(self.user_ids)

    @property
    def num_items(self) -> int:
        """Items of all parts and of the catalogue."""
        return len(self.item_ids)

    def checksums(self) -> dict[str, str]:
        """sha256 of each part's lines "user item event_type ts value" in published ids, users in numeric order.

        Times are in seconds; the value is left out (with its space) where there is none.
        """
        return {part: _sha256(self, getattr(self, part)) for part in PARTS}


def load_split(name: str, root: Path) -> Split:
    """The set called `name` (a key of SETS), read from `root`: its folder, or the wheel that holds MovieLens.

    Raises UsageError for another name and BadDataError for files that are not those published. It takes a few seconds.
    """
    if name not in SETS:
        raise UsageError(f"no public set {name!r}: {nearest(name, SETS)}")
    module, options = SETS[name]
    settings = module.Settings(root=root, **options)
    return _split(settings.name, settings.time_kind, module.read(settings))


def _split(name: str, time_kind: str, published: Published) -> Split:
    rows = published.interactions
    users, user = _number(rows["user_id"])
    items, _ = _number(pa.concat_arrays([*rows["product_id"].chunks, *published.catalogue["product_id"].chunks]))
    item = np.searchsorted(items, rows["product_id"].cast(pa.int64()).to_numpy())
    kind = pc.index_in(rows["event_type"], pa.array(EVENT_TYPES)).to_numpy()
    columns = (item, kind, rows["ts"].to_numpy(), rows["value"].to_numpy())
    parts = {}
    for part in PARTS:
        here = np.flatnonzero(pc.equal(rows["part"], part).to_numpy())
        parts[part] = _part(user[here], len(users), *(column[here] for column in columns))
    ids = pa.array(items).cast(pa.string())
    about = published.catalogue.take(pc.index_in(ids, published.catalogue["product_id"].combine_chunks()))
    about = about.set_column(0, CATALOGUE.field(0), ids)
    return Split(name, time_kind, tuple(map(str, users)), tuple(ids.to_pylist()), **parts, items=about)


def _number(ids: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct ids in numeric order, and the place of each given one."""
    return np.unique(ids.cast(pa.int64()).to_numpy(zero_copy_only=False), return_inverse=True)


def _part(
    user: NDArray[np.int64],
    num_users: int,
    item: NDArray[np.int64],
    kind: NDArray[np.int32],
    ts: NDArray[np.int64],
    value: NDArray[np.float32],
) -> Part:
    order = np.lexsort((kind, item, ts, user))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(user, minlength=num_users))])
    return Part(offsets, item[order], kind[order].astype(np.int8), ts[order], value[order])


def _sha256(split: Split, part: Part) -> str:
    user = np.repeat(np.arange(split.num_users), np.diff(part.offsets))
    value = pa.array(part.values, from_pandas=True).cast(pa.string())
    columns = [
        pa.array(split.user_ids).take(pa.array(user)),
        pa.array(split.item_ids).take(pa.array(part.items)),
        pa.array(EVENT_TYPES).take(pa.array(part.event_types)),
        pa.array(part.ts // 1_000_000).cast(pa.string()),
        value,
    ]
    lines = pc.binary_join_element_wise(*columns, " ", null_handling="skip").to_pylist()
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
