"""The best plain Polars pipeline we could write: a streaming scan, ids as categories, and one sort for both directions.

python -m tests.benchmarks.graph_build.polars_csr EVENTS OUT

What was tried on 10 M events, in CPU seconds on two threads. A log in which nothing comes in order: for each relation
a sort by three columns 20, the same within the streaming scan 14, one sort by time and a stable sort by source for
each relation 12. The log of this benchmark: the last 6.9 at a peak of 1.39 GB; with implied columns left out, no sort
of what is in order, and one packed key whose order gathers just the columns to be written 6.8 at 1.09 GB, which
stands here. Ids by joins with their distinct values take twice the time of categories; an in-memory scan half as long
again and 1.4 GB.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from data.schema import EVENT_TYPES
from tests.benchmarks.children import measured
from tests.benchmarks.graph_build.layout import KINDS, TARGETS, names, rowptr_of, save

CATEGORIES = {kind: pl.Categorical(pl.Categories(kind)) for kind in KINDS}


def build(events: Path, out: Path) -> None:
    """Build `out` from the Parquet files of folder `events`; the ids are held as numbers, 37 bytes a row."""
    # An empty series keeps a mapping from strings to numbers alive when no frame refers to it any more.
    alive = [pl.Series(dtype=dtype) for dtype in CATEGORIES.values()]
    frame = _encoded(events)
    sizes = {kind: int(frame[kind].max() or -1) + 1 for kind in KINDS}  # type: ignore[arg-type, operator]
    for number, event_type in enumerate(EVENT_TYPES):
        of_type = _in_order(frame.lazy().filter(pl.col("event_type") == number).drop("event_type").collect())
        for target in TARGETS:
            alone = pl.col("product").is_null() if target == "advertiser" else True
            columns = [name for name in ("seen", "ts", "weight") if name in of_type.columns]
            wanted = of_type.lazy().filter(pl.col(target).is_not_null() & alone)
            edges = wanted.select("user", target, *columns).collect()
            if len(edges):
                forward, backward = names(event_type, target)
                _write(edges, "user", target, sizes["user"], out / forward)
                _write(edges, target, "user", sizes[target], out / backward)
    _write_ids(sizes, out / "nodes")
    del alive


def _in_order(events: pl.DataFrame) -> pl.DataFrame:
    """Events by (seen, ts), without the columns that are implied in all of them."""
    implied = {"ts": (events["ts"] + 1 == events["seen"]).all(), "weight": (events["weight"] == 1).all()}
    events = events.drop(name for name, constant in implied.items() if constant)
    if implied["ts"] and events["seen"].is_sorted():
        return events
    return events.sort([name for name in ("seen", "ts") if name in events.columns])


def _encoded(events: Path) -> pl.DataFrame:
    codes = [pl.col(f"{kind}_id").cast(CATEGORIES[kind]).to_physical().alias(kind) for kind in KINDS]
    return (
        pl.scan_parquet(events / "*.parquet")
        .select(
            *codes,
            pl.col("event_type").cast(pl.Enum(EVENT_TYPES)).to_physical(),
            "ts",
            seen=pl.max_horizontal(pl.col("ts") + 1, "known_at"),
            weight=(1 / pl.col("sample_prob")).cast(pl.Float32),
        )
        .collect(engine="streaming")
    )


def _write(edges: pl.DataFrame, source: str, target: str, rows: int, folder: Path) -> None:
    """Write rows in the order of `source`: one key holds it and the place in time."""
    place = pl.int_range(pl.len(), dtype=pl.UInt64)
    packed = edges.select(packed=pl.col(source).cast(pl.UInt64) * 2**32 + place)["packed"].sort()
    order = packed.to_frame().select((pl.col("packed") & 0xFFFFFFFF).cast(pl.UInt32))["packed"]
    kept = {"col": target, "visible_from": "seen", "time": "ts", "weight": "weight"}
    arrays = {name: edges[column].gather(order).to_numpy() for name, column in kept.items() if column in edges.columns}
    arrays["col"] = arrays["col"].astype(np.int32, copy=False)
    save(folder, rowptr=rowptr_of(edges[source].to_numpy(), rows), **arrays)


def _write_ids(sizes: dict[str, int], folder: Path) -> None:
    folder.mkdir()
    for kind, size in sizes.items():
        codes = pl.int_range(size, dtype=pl.UInt32, eager=True)
        ids = codes.cat.to(CATEGORIES[kind]).cast(pl.String)
        pl.DataFrame({"entity_id": ids}).write_parquet(folder / f"{kind}.parquet")


if __name__ == "__main__":
    measured(build)
