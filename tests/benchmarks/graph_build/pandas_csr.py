"""The straightforward pandas pipeline: read all, factorize ids, and for each relation sort_values and save.

python -m tests.benchmarks.graph_build.pandas_csr EVENTS OUT
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from tests.benchmarks.children import measured
from tests.benchmarks.graph_build.layout import COLUMNS, KINDS, TARGETS, names, rowptr_of, save


def build(events: Path, out: Path) -> None:
    """Build `out` from the Parquet files of folder `events`; all of them are held at once."""
    frame = pd.read_parquet(events, columns=list(COLUMNS))
    frame["seen"] = np.maximum(frame.pop("known_at"), frame["ts"] + 1)
    frame["weight"] = (1 / frame.pop("sample_prob")).astype("float32")
    sizes = {}
    (out / "nodes").mkdir(parents=True)
    for kind in KINDS:
        frame[kind], ids = pd.factorize(frame.pop(f"{kind}_id"))
        pd.DataFrame({"entity_id": ids}).to_parquet(out / "nodes" / f"{kind}.parquet")
        sizes[kind] = len(ids)
    frame.loc[frame["product"] >= 0, "advertiser"] = -1
    for event_type, group in frame.groupby("event_type"):
        for target in TARGETS:
            edges = group[group[target] >= 0]
            if len(edges):
                forward, backward = names(str(event_type), target)
                _write(edges, "user", target, sizes["user"], out / forward)
                _write(edges, target, "user", sizes[target], out / backward)


def _write(edges: pd.DataFrame, source: str, target: str, rows: int, folder: Path) -> None:
    edges = edges.sort_values([source, "seen", "ts"])
    arrays = {"col": edges[target].to_numpy(np.int32), "visible_from": edges["seen"].to_numpy()}
    if (edges["ts"] + 1 != edges["seen"]).any():
        arrays["time"] = edges["ts"].to_numpy()
    if (edges["weight"] != 1).any():
        arrays["weight"] = edges["weight"].to_numpy()
    save(folder, rowptr=rowptr_of(edges[source].to_numpy(), rows), **arrays)


if __name__ == "__main__":
    measured(build)
