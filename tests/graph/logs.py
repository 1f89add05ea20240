"""Random logs of several days with everything a graph must cope with, and builds of them by any path."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data import parts
from data.artifacts import ArtifactRef, OutputDir, sha256_file
from data.context import RunContext
from data.schema import ADVERTISERS, CAMPAIGNS, EVENT_TYPES, EVENTS, MICROS_PER_DAY, PRODUCTS, USERS
from graph import build
from graph.coengagement import Config as CoEngagement

FIRST = 19_700
QUICK = {"co_engagement": CoEngagement(grid_days=3, min_support=1, min_users=1, shrinkage=0.0), "guards": None}


def random_log(days: int = 9, a_day: int = 40, seed: int = 0) -> pa.Table:
    """Baskets at one moment, late rows, sampled events, a hub product, new users every day, an empty day (the 5th)."""
    rng, rows = np.random.default_rng(seed), []
    for day in range(days):
        for _ in range(0 if day == 4 else int(rng.integers(a_day // 2, a_day * 2))):
            ts = int((FIRST + day + rng.random()) * MICROS_PER_DAY) // 1_000 * 1_000
            user, kind = f"u{int(rng.integers(8 + day))}", EVENT_TYPES[int(rng.integers(8))]
            alone = rng.random() < 0.15
            for _ in range(int(rng.integers(1, 4))):
                product = 0 if rng.random() < 0.4 else int(rng.integers(12))
                rows.append(
                    {
                        "event_id": f"e{len(rows):05d}",
                        "user_id": user,
                        "event_type": kind,
                        "product_id": None if alone else f"p{product}",
                        "advertiser_id": f"a{product % 4}",
                        "campaign_id": f"c{product % 3}" if rng.random() < 0.2 else None,
                        "ts": ts,
                        "known_at": ts + (MICROS_PER_DAY // 2 if rng.random() < 0.2 else 0),
                        "sample_prob": 0.5 if rng.random() < 0.1 else 1.0,
                        "source": "test",
                    }
                )
    return parts.in_order(pa.Table.from_pylist(rows, schema=EVENTS))


def until(log: pa.Table, day: int) -> pa.Table:
    """The rows of the first `day` days."""
    seen = np.maximum(log["ts"].to_numpy() + 1, log["known_at"].to_numpy())
    return log.filter(pa.array(seen <= (FIRST + day) * MICROS_PER_DAY))


def write_log(folder: Path, log: pa.Table, known: int = 0, row_group: int = 131_072) -> ArtifactRef:
    """An events artifact of `log` over a fixed catalogue known from `known` [us] on."""
    out = OutputDir(folder, folder, "log")
    parts.write_events(out, [log] if len(log) else [])
    for path in folder.glob("events/*.parquet"):
        table = pq.read_table(path)
        pq.write_table(table, path, row_group_size=row_group, write_page_checksum=True)
    products = [
        {"product_id": f"p{i}", "advertiser_id": f"a{i % 4}", "category": ["All", f"C{i % 3}"]} for i in range(14)
    ]
    products = [row | {"first_seen": known, "known_at": known} for row in products]
    out.write_table("products.parquet", pa.Table.from_pylist(products, schema=PRODUCTS))
    sellers = [{"advertiser_id": name, "known_at": known} for name in ("a0", "a1", "idle")]
    out.write_table("advertisers.parquet", pa.Table.from_pylist(sellers, schema=ADVERTISERS))
    campaigns = [{"campaign_id": "c0", "advertiser_id": "a1", "known_at": known}]
    out.write_table("campaigns.parquet", pa.Table.from_pylist(campaigns, schema=CAMPAIGNS))
    out.write_table("users.parquet", USERS.empty_table())
    return finished(out, "events", {})


def make(folder: Path, events: ArtifactRef, previous: ArtifactRef | None = None, threads: int = 1, **config):
    """The graph of `events`, built in `folder` (with its work folder beside it)."""
    out = OutputDir(folder, folder.with_name(f"{folder.name}.work"), "graph")
    inputs = {"events": events} | ({"previous": previous} if previous else {})
    metrics = build.run(build.Config(**{**QUICK, **config}), inputs, out, RunContext(threads=threads))
    return finished(out, "graph", metrics)


def finished(out: OutputDir, stage: str, metrics) -> ArtifactRef:
    """An artifact without the store's lease and fsyncs."""
    files = {}
    for path in (path for path in out.path.rglob("*") if path.is_file()):
        name = path.relative_to(out.path).as_posix()
        files[name] = {"bytes": path.stat().st_size, "rows": out.rows.get(name), "sha256": sha256_file(path)}
    out.write_json("manifest.json", {"files": files, "metrics": metrics})
    return ArtifactRef(stage, out.key, out.path)


def hashes(ref: ArtifactRef) -> dict[str, str]:
    """sha256 by file."""
    return {name: file["sha256"] for name, file in ref.manifest["files"].items()}


@functools.cache
def usual() -> pa.Table:
    """The log most tests take."""
    return random_log()
