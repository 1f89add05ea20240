"""What the reading commands show: status, manifests, verification, tokens. No torch, no Prefect."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from data import lease, snapshot
from data.artifacts import Store
from data.errors import BadDataError, UsageError, nearest
from data.schema import ENTITY_TYPES, from_micros, to_micros
from data.snapshot import Snapshot
from flows.summary import wide_console


def status(store: Store) -> dict[str, Any]:
    """The published snapshot, keys held by a lease now, and work folders that a stopped run left."""
    running, unfinished = [], []
    for path in sorted((store.root / "work").glob("*/*")):
        if not path.is_dir() or path.parent.name in ("media", "prefect"):
            continue
        held = lease.read_lease(path)
        entry = {"stage": path.parent.name, "key": path.name}
        if held is not None and held.alive():
            beat = datetime.fromtimestamp(held.heartbeat, UTC).isoformat(timespec="seconds")
            running.append({**entry, "pid": held.pid, "host": held.host, "fence": held.fence, "heartbeat": beat})
        elif not (store.root / path.parent.name / path.name).exists():
            unfinished.append({**entry, "files": sum(1 for p in path.rglob("*") if p.is_file())})
    pointer = store.root / "CURRENT"
    published = snapshot.load(store) if pointer.exists() else None
    return {
        "store": str(store.root),
        "published": None
        if published is None
        else {"id": published.id, "as_of": str(from_micros(published.as_of).date())},
        "running": running,
        "unfinished": unfinished,
    }


def render_status(found: dict[str, Any]) -> None:
    """Print `status` for a person."""
    published = found["published"]
    print(f"store       {found['store']}")
    print(
        f"published   {published['id']} (as of {published['as_of']})"
        if published
        else "published   nothing yet: run `strata demo`"
    )
    for entry in found["running"]:
        owner = f"process {entry['pid']} on {entry['host']}, heartbeat {entry['heartbeat']}"
        print(f"running     {entry['stage']} {entry['key']}: {owner}")
    for entry in found["unfinished"]:
        print(f"unfinished  {entry['stage']} {entry['key']}: the same command goes on from there")


def manifest(store: Store, published: Snapshot, stage: str) -> dict[str, Any]:
    """The manifest of one stage of a snapshot, `simulated` if its log is; raises UsageError for an unknown one."""
    if stage not in published.stages:
        raise UsageError(f"unknown stage {stage!r}: {nearest(stage, published.stages)}")
    found = published.ref(store, stage).manifest
    made_up = "events" in published.stages and published.ref(store, "events").metrics.get("simulated")
    return {**found, "simulated": True} if made_up else found


def render_manifest(found: dict[str, Any]) -> None:
    """Print a manifest: causes, files, figures."""
    print(f"{found['stage']} {found['key']}   {found['duration_s']} s   {found['peak_rss_mb']} MB peak")
    if found.get("simulated"):
        print("events   simulated: nobody did what the log says")
    print(f"inputs   {found['inputs'] or 'raw files'}\nseed     {found['seed']}")
    print(f"config   {json.dumps(found['config'], default=str)}")
    table = Table("file", "rows", "bytes", "sha256", box=SIMPLE)
    for name, listed in found["files"].items():
        rows = "" if listed["rows"] is None else f"{listed['rows']:,}"
        table.add_row(name, rows, f"{listed['bytes']:,}", listed["sha256"][:12])
    wide_console().print(table)
    print(json.dumps(found["metrics"], indent=1, ensure_ascii=False))


def verify(store: Store, snapshot_id: str | None) -> list[dict[str, Any]]:
    """Hash every file of a snapshot; raises BadDataError at the first that differs from its manifest."""
    published = snapshot.load(store, snapshot_id)
    checked = []
    for stage in published.stages:
        ref = published.ref(store, stage)
        ref.verify()
        sizes = [listed["bytes"] for listed in ref.manifest["files"].values()]
        checked.append({"stage": stage, "key": ref.key, "files": len(sizes), "bytes": sum(sizes), "ok": True})
    return checked


def render_verify(checked: list[dict[str, Any]]) -> None:
    """Print the result of `verify`."""
    for entry in checked:
        print(f"ok  {entry['stage']:<11} {entry['key']}  {entry['files']:>3} files  {entry['bytes'] / 1e6:>9,.1f} MB")


def holders(
    store: Store, snapshot_id: str | None, primitive_id: str, kind: str, k: int, as_of: str | None
) -> list[dict[str, Any]]:
    """The `k` entities of type `kind` whose bags hold an interest with most weight, by `as_of` (an ISO date) or now.

    Raises UsageError for an unknown type, BadDataError for an unknown interest.
    """
    from hierarchy.query import entities_of

    if kind not in ENTITY_TYPES:
        raise UsageError(f"unknown entity type {kind!r}: {nearest(kind, ENTITY_TYPES)}")
    until = None if as_of is None else to_micros(instant(as_of))
    found = entities_of(store, snapshot.load(store, snapshot_id), primitive_id, kind, k, until)
    return [{"entity_type": kind, **row, "as_of": str(from_micros(row["as_of"]).date())} for row in found]


def render_holders(found: list[dict[str, Any]]) -> None:
    """Print the entities of an interest, heaviest first."""
    table = Table("weight", "type", "id", "bag of", box=SIMPLE)
    for row in found:
        table.add_row(f"{row['weight']:.3f}", row["entity_type"], row["entity_id"], row["as_of"])
    wide_console().print(table)


def tokens(
    store: Store, snapshot_id: str | None, entity_type: str, entity_id: str, as_of: str | None
) -> dict[str, Any]:
    """The bag of meaning of one entity at the newest date not after `as_of` (an ISO date)."""
    from hierarchy.query import tokens_of

    if entity_type not in ENTITY_TYPES:
        raise UsageError(f"unknown entity type {entity_type!r}: {nearest(entity_type, ENTITY_TYPES)}")
    until = None if as_of is None else to_micros(instant(as_of))
    published = snapshot.load(store, snapshot_id)
    rows = tokens_of(store, published, entity_type, entity_id, until)
    if not rows:
        raise BadDataError(
            f"no tokens of {entity_type} {entity_id!r} in snapshot {published.id}"
            + (f" up to {as_of}" if as_of else "")
        )
    head = rows[0]
    return {
        "entity_type": entity_type,
        "entity_id": entity_id,
        "as_of": str(from_micros(head["as_of"]).date()),
        "vocab_version": head["vocab_version"],
        "tokens": [
            {name: row[name] for name in ("level", "rank", "primitive_id", "label", "weight", "residual")}
            for row in rows
        ],
    }


def instant(text: str) -> datetime:
    """The instant that `text` names: a date (its first moment, UTC) or a time; raises UsageError for anything else."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"expected a date such as 2017-10-01, or 2017-10-01T12:00:00Z, got {text!r}") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def render_tokens(found: dict[str, Any]) -> None:
    """Print a bag of meaning, coarse level first."""
    print(f"{found['entity_type']} {found['entity_id']} as of {found['as_of']} (vocabulary {found['vocab_version']})")
    table = Table("level", "weight", "interest", "primitive", box=SIMPLE)
    for row in found["tokens"]:
        table.add_row(str(row["level"]), f"{row['weight']:.2f}", row["label"], row["primitive_id"])
    wide_console().print(table)


def report(store: Store, snapshot_id: str | None, out: Path | None) -> dict[str, Any]:
    """Path of a snapshot's report.html, or of its copy at `out`."""
    page = snapshot.load(store, snapshot_id).ref(store, "report").file("report.html")
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, out)
        page = out
    return {"report": str(page.resolve())}
