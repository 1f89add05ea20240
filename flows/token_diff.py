"""What `strata tokens diff` shows: the churn of tokens between two snapshots, with and without stable ids."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from data.artifacts import Store
from data.schema import from_micros, to_micros
from data.snapshot import Snapshot
from flows import inspection, vocabularies
from flows.summary import wide_console

_UNRELATED = (
    "The later vocabulary was not aligned to the earlier one: equal ids need not be equal interests. "
    "Vocabularies are aligned where one is published in the same store, of the same log, with an earlier t0."
)


def diff(store: Store, old: str | None, new: str | None, as_of: str | None, moves: int) -> dict[str, Any]:
    """What changed from snapshot `old` (the one before `new` if left out) to `new` (the published one), see
    hierarchy.diff; `from` and `to` name them, `aligned` says whether equal ids mean equal interests.

    Raises UsageError when there is nothing to compare with, BadDataError for an unknown snapshot or a date too early.
    """
    from hierarchy.diff import Side
    from hierarchy.diff import diff as compare

    date = None if as_of is None else to_micros(inspection.instant(as_of))
    pair = vocabularies.pair(store, old, new)
    stages = ("tokens", "supergraph", "embeddings")
    before, after = (Side(*(found.ref(store, stage) for stage in stages)) for found in pair)
    with tempfile.TemporaryDirectory() as scratch:
        found = compare(before, after, Path(scratch) / "spill", date, moves)
    named = {name: _named(snapshot) for name, snapshot in zip(("from", "to"), pair, strict=True)}
    return {**named, "aligned": vocabularies.descends(store, *pair), **found}


def _named(found: Snapshot) -> dict[str, str]:
    as_of = str(from_micros(found.as_of).date())
    return {"snapshot": found.id, "as_of": as_of, "vocab_version": found.vocab_version}


def render(found: dict[str, Any]) -> None:
    """Print `diff` for a person: ids and changes by level, then by type and by how much is known, then the moves."""
    for name in ("from", "to"):
        side = found[name]
        print(f"{name:<5} {side['snapshot']} (as of {side['as_of']}, vocabulary {side['vocab_version']})")
    print(f"bags  of {found['compared_at']}; {found['gone']:,} entities only before, {found['come']:,} only after")
    if not found["aligned"]:
        print(_UNRELATED)
    console = wide_console()
    console.print(_levels(found["levels"]))
    console.print(_groups(found["groups"]))
    if found["moves"]:
        console.print(_moves(found["moves"]))


_CHANGES = ("entities", "strongest changed", "bag change", "unaligned: strongest", "unaligned: bag")


def _table(title: str, texts: tuple[str, ...], numbers: tuple[str, ...]) -> Table:
    table = Table(*texts, title=title, title_justify="left", box=SIMPLE)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _levels(levels: list[dict[str, Any]]) -> Table:
    table = _table("Ids and changes by level", ("level",), ("kept", "minted", "retired", *_CHANGES))
    for row in levels:
        table.add_row(str(row["level"]), *(f"{row[name]:,}" for name in ("kept", "minted", "retired")), *_changes(row))
    return table


def _groups(groups: list[dict[str, Any]]) -> Table:
    table = _table("By type and events by then (new: none, rare: 1 to 20)", ("level", "type", "events"), _CHANGES)
    for row in groups:
        table.add_row(str(row["level"]), row["entity_type"], row["bucket"], *_changes(row))
    return table


def _changes(row: dict[str, Any]) -> list[str]:
    names = ("strongest_changed", "bag_change", "raw_strongest_changed", "raw_bag_change")
    return [f"{row['entities']:,}", *("" if row[name] is None else f"{row[name]:.1%}" for name in names)]


def _moves(moves: list[dict[str, Any]]) -> Table:
    table = _table("Commonest changes of the strongest interest", ("level", "was", "now"), ("entities",))
    for row in moves:
        ends = (f"{row[f'{end}_label']} ({row[end]})" for end in ("was", "now"))
        table.add_row(str(row["level"]), *map(escape, ends), f"{row['entities']:,}")
    return table
