"""Products nobody has touched, found by content alone: the rows that the learner has to beat.

A user is the mean content of the products met before; every candidate is ranked by cosine. completejourney: products
first bought from T0 on, by users who bought before. amazon-scientific has order only: there a seeded tenth of the
items is withheld from everybody's history.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data.artifacts import ArtifactRef
from data.parts import EVENT_PARTS
from encoders.base import unit
from graph.store import index_in
from tests.benchmarks.encoder_quality.measures import recall, row

TOPS = (10, 20)
WITHHELD = 0.1

Ints = NDArray[np.int64]


def measure(
    name: str, events: ArtifactRef, features: ArtifactRef, t0: int | None, seed: int = 0
) -> list[dict[str, Any]]:
    """Rows for one set; `t0` [us] splits by time, None withholds items drawn by `seed`."""
    users, items, times = _engaged(events, features)
    content = np.asarray(features.array("content_product.npy"))
    if t0 is None:
        rng = np.random.default_rng(seed)
        cold = np.flatnonzero(rng.random(len(content)) < WITHHELD)
        past, asked = ~np.isin(items, cold), np.isin(items, cold)
    else:
        first = np.full(len(content), np.iinfo(np.int64).max)
        np.minimum.at(first, items, times)
        cold = np.flatnonzero((first >= t0) & (first < np.iinfo(np.int64).max))
        past, asked = times < t0, (times >= t0) & np.isin(items, cold)
    return _rows(name, content, cold, _lists(users[past], items[past]), _lists(users[asked], items[asked]))


def _rows(
    name: str, content: NDArray[np.float32], cold: Ints, past: dict[int, Ints], wanted: dict[int, Ints]
) -> list[dict[str, Any]]:
    asked = [user for user in wanted if user in past]
    queries = unit(np.stack([content[past[user]].mean(axis=0) for user in asked]))
    positives = [wanted[user] for user in asked]
    shape = f"{len(asked):,} users, {sum(map(len, positives)):,} positives, {len(cold):,} cold of {len(content):,}"
    rng = np.random.default_rng(0)
    blind = unit(rng.normal(size=content.shape))
    rows = []
    for among, candidates in (("cold", cold), ("all", np.arange(len(content)))):
        for k in TOPS:
            for peer, items in (("content only", content), ("random", blind)):
                value = recall(queries, items, candidates, positives, k).mean()
                rows.append(row(f"cold products, {name}, among {among}", peer, f"Recall@{k}", value, shape))
    return rows


def _engaged(events: ArtifactRef, features: ArtifactRef) -> tuple[Ints, Ints, Ints]:
    """User number, product row and time of every event but impressions, each (n,)."""
    ids = features.table("entities_product.parquet", ["entity_id"])["entity_id"].combine_chunks()
    table = pa.concat_tables(
        events.table(part, ["user_id", "product_id", "event_type", "ts"]) for part in events.names(EVENT_PARTS)
    )
    wanted = np.asarray(table["product_id"].is_valid()) & (np.asarray(table["event_type"]) != "impression")
    table = table.filter(pa.array(wanted))
    users = table["user_id"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    return users, index_in(table["product_id"], ids), table["ts"].to_numpy()


def _lists(users: Ints, items: Ints) -> dict[int, Ints]:
    """The distinct items of each user."""
    order = np.argsort(users, kind="stable")
    cuts = np.flatnonzero(np.diff(users[order])) + 1
    return {
        int(own[0]): np.unique(found)
        for own, found in zip(np.split(users[order], cuts), np.split(items[order], cuts), strict=True)
        if len(own)
    }
