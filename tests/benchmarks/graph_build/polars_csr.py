"""The best plain Polars pipeline we could write: a streaming scan, ids as categories, and one sort for both directions.

python -m tests.benchmarks.graph_build.polars_csr EVENTS OUT

What was tried on 10 M events, in CPU seconds of two threads on a busy machine: sort by three columns for each relation
(20), a sort by one packed key (16), the sort within the streaming scan (14), and what stands here (12): rows come in
order of time, then one stable sort by source. Ids by joins with their distinct values in place of categories: twice the
time of the scan. Working one event type at a time keeps the sort's copy small.
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
        of_type = frame.filter(pl.col("event_type") == number).drop("event_type").sort("seen", "ts")
        for target in TARGETS:
            alone = pl.col("product").is_null() if target == "advertiser" else True
            edges = of_type.filter(pl.col(target).is_not_null() & alone).select("user", target, "seen", "ts", "weight")
            if len(edges):
                forward, backward = names(event_type, target)
                _write(edges, "user", target, sizes["user"], out / forward)
                _write(edges, target, "user", sizes[target], out / backward)
    _write_ids(sizes, out / "nodes")
    del alive


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
    edges = edges.sort(source, maintain_order=True)
    arrays = {"col": edges[target].to_numpy().astype(np.int32, copy=False), "visible_from": edges["seen"].to_numpy()}
    if (edges["ts"] + 1 != edges["seen"]).any():
        arrays["time"] = edges["ts"].to_numpy()
    if (edges["weight"] != 1).any():
        arrays["weight"] = edges["weight"].to_numpy()
    save(folder, rowptr=rowptr_of(edges[source].to_numpy(), rows), **arrays)


def _write_ids(sizes: dict[str, int], folder: Path) -> None:
    folder.mkdir()
    for kind, size in sizes.items():
        codes = pl.int_range(size, dtype=pl.UInt32, eager=True)
        ids = codes.cat.to(CATEGORIES[kind]).cast(pl.String)
        pl.DataFrame({"entity_id": ids}).write_parquet(folder / f"{kind}.parquet")


if __name__ == "__main__":
    measured(build)
