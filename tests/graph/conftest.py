"""Small graphs from plain tuples, built through the real stage."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from data import parts
from data.artifacts import ArtifactRef, OutputDir, sha256_file
from data.context import RunContext
from data.schema import ADVERTISERS, CAMPAIGNS, EVENTS, PRODUCTS, QUARANTINE, USERS
from graph import build
from graph.store import GraphStore

Event = tuple[str, str | None, str, int, int]
"""user, product ("@name" for an advertiser alone), event type, ts, known_at."""

CATALOGUE = {
    # product: (owner, category path, known_at)
    "apple": ("farm", ["Food", "Fruit"], 0),
    "pear": ("farm", ["Food", "Fruit"], 0),
    "bread": ("mill", ["Food", "Bakery", "Bread"], 0),
    "soap": ("mill", ["Home"], 0),
    "novel": (None, None, 5),
}


def _events(rows: Sequence[Event]) -> pa.Table:
    records = []
    for number, (user, product, kind, ts, known_at) in enumerate(rows):
        alone = product is not None and product.startswith("@")
        record = {"event_id": f"e{number}", "user_id": user, "event_type": kind, "ts": ts, "known_at": known_at}
        owner = product[1:] if alone else CATALOGUE[product][0] if product else None
        record |= {"product_id": None if alone else product, "advertiser_id": owner}
        record |= {"campaign_id": "spring" if alone else None, "sample_prob": 1.0, "source": "test"}
        records.append(record)
    return pa.Table.from_pylist(sorted(records, key=lambda r: (r["ts"], r["event_id"])), schema=EVENTS)


def _write(out: OutputDir, rows: Sequence[Event]) -> None:
    products = [
        {"product_id": name, "advertiser_id": owner, "category": path, "first_seen": known, "known_at": known}
        for name, (owner, path, known) in sorted(CATALOGUE.items())
    ]
    campaigns = [{"campaign_id": "spring", "advertiser_id": "mill", "known_at": 2}]
    parts.write_events(out, [parts.in_order(_events(rows))])
    out.write_table("products.parquet", pa.Table.from_pylist(products, schema=PRODUCTS))
    out.write_table(
        "advertisers.parquet", pa.Table.from_pylist([{"advertiser_id": "mill", "known_at": 1}], ADVERTISERS)
    )
    out.write_table("campaigns.parquet", pa.Table.from_pylist(campaigns, schema=CAMPAIGNS))
    out.write_table("users.parquet", pa.Table.from_pylist([{"user_id": "zoe", "known_at": 3}], schema=USERS))
    out.write_table("quarantine.parquet", QUARANTINE.empty_table())


def _unpublished(folder: Path, writer: Callable[[OutputDir], Any]) -> ArtifactRef:
    """An artifact without the store's lease and fsyncs, which would be most of the time of a property test."""
    out = OutputDir(folder, folder.with_name(f"{folder.name}.work"), "test")
    metrics = writer(out)
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    sizes = {name: {"bytes": (folder / name).stat().st_size, "rows": out.rows.get(name)} for name in names}
    files = {name: {**size, "sha256": sha256_file(folder / name)} for name, size in sizes.items()}
    out.write_json("manifest.json", {"files": files, "metrics": metrics})
    return ArtifactRef(folder.name, "test", folder)


@pytest.fixture(scope="session")
def graph_ref(tmp_path_factory) -> Callable[[list[Event]], ArtifactRef]:
    """`graph_ref(events) -> ArtifactRef` of stage graph, over the fixed catalogue above."""

    @cache
    def make(rows: tuple[Event, ...], **config) -> ArtifactRef:
        root = tmp_path_factory.mktemp("graph")
        events = _unpublished(root / "events", lambda out: _write(out, rows))
        inputs = {"events": events}
        return _unpublished(
            root / "graph", lambda out: build.run(build.Config(**config), inputs, out, RunContext(threads=1))
        )

    return lambda rows, **config: make(tuple(rows), **{"guards": None, **config})


@pytest.fixture(scope="session")
def graph_of(graph_ref) -> Callable[[list[Event]], GraphStore]:
    """`graph_of(events) -> GraphStore`."""
    return lambda rows, **config: GraphStore.open(graph_ref(rows, **config))
