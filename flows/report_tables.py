"""The report's tables as cells ready to print, each with the one line a reader needs to understand it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from data.artifacts import ArtifactRef

Row = Mapping[str, Any]
Table = dict[str, Any]
"""title, lead, caption, head, rows of {cells, best, strong}, notes, and `texts`: how many first columns are words."""

_METHODS = {"learner": "Learner (this pipeline)", "content only": "Content only (no behaviour)"}
_PROTOCOLS = {"all": "All choices", "new": "New to the person", "cold": "New to everyone"}


def table(
    title: str, lead: str, head: Sequence[str], rows: Iterable[Row], texts: int = 1, notes: Sequence[str] = ()
) -> Table:
    """A table; each of `rows` holds `cells`, and may hold `best` (columns in green), `strong` and `bars`.

    `bars` maps a column to the percentage of the cell that a bar behind the number fills.
    """
    made = [{"best": (), "bars": {}, "strong": False, **row} for row in rows]
    return {"title": title, "caption": title, "lead": lead, "head": head, "rows": made, "texts": texts, "notes": notes}


def figure(value: Any, digits: int = 3) -> str:
    """A number for a cell: fixed digits for fractions, thousands separated for counts, a dash for none or NaN."""
    if value is None or value != value:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.{digits}f}" if isinstance(value, float) else str(value)


def retrieval(rows: Sequence[Row]) -> Table:
    """Recall@20: methods down, protocol and split across, the best of each column marked."""
    columns = list(dict.fromkeys((row["protocol"], row["split"]) for row in rows))
    found = {(row["method"], row["protocol"], row["split"]): row for row in rows}
    tops = {column: max(_recalls(rows, *column).values(), default=None) for column in columns}
    made = []
    for method in dict.fromkeys(row["method"] for row in rows):
        cells = [found.get((method, *column), {}) for column in columns]
        best = [
            place + 1
            for place, (cell, column) in enumerate(zip(cells, columns, strict=True))
            if cell.get("recall@20") is not None and cell["recall@20"] == tops[column]
        ]
        shown = [figure(cell["recall@20"], 4) if cell else "" for cell in cells]
        made.append({"cells": [_METHODS.get(method, method), *shown], "best": best, "strong": method == "learner"})
    return table(
        "Finding what people choose next",
        "Recall@20: of the products a person went on to choose, the share that a method puts among its first 20 of the "
        "whole catalogue. Higher is better; the best of each column is green. New to the person: only products they "
        "had never chosen. New to everyone: only products with no event at all before. Methods were tuned on the "
        "validation weeks; the test weeks were looked at once.",
        ["Method", *(f"{_PROTOCOLS.get(protocol, protocol)}, {split}" for protocol, split in columns)],
        made,
        notes=_asked(rows),
    )


def _recalls(rows: Sequence[Row], protocol: str, split: str) -> dict[str, float]:
    asked = [row for row in rows if (row["protocol"], row["split"]) == (protocol, split)]
    return {row["method"]: row["recall@20"] for row in asked if row["recall@20"] is not None}


def _asked(rows: Sequence[Row]) -> list[str]:
    people = dict.fromkeys((row["protocol"], row["split"], row["users"], row.get("note")) for row in rows)
    said = [
        f"{_PROTOCOLS.get(protocol, protocol)}, {split}: {users:,} people" + (f" ({note})" if note else "")
        for protocol, split, users, note in people
    ]
    return ["; ".join(said) + "."] if said else []


def retrieval_tile(rows: Sequence[Row]) -> list[dict[str, str]]:
    """The header's figure: the learner's recall of all choices on the test weeks beside the best other method's."""
    recalls = _recalls(rows, "all", "test")
    mine = recalls.pop("learner", None)
    if mine is None:
        return []
    best = max(recalls, key=lambda method: recalls[method], default=None)
    note = "of what people chose next, found among 20 proposals"
    beside = "" if best is None else f"; best baseline: {best}, {recalls[best]:.1%}"
    return [{"value": f"{mine:.1%}", "label": "Recall@20 on the test weeks", "note": note + beside}]


def levels(rows: Sequence[Row]) -> Table:
    """How well the interests of each level are used and how far they agree with the catalogue's categories."""
    return table(
        "The levels themselves",
        "In use: share of interests that are the main one of some product. Effective number: how many equally common "
        "interests would be as varied (perplexity). Agreement with categories: 0 none, 1 perfect (normalised mutual "
        "information with the catalogue's category at the named depth). Duplicates: share of interests that nearly "
        "coincide with another.",
        [
            "Level",
            "Interests",
            "In use",
            "Effective number",
            "Agreement with categories",
            "Category depth",
            "Duplicates",
        ],
        (
            {
                "cells": [
                    f"Level {row['level']}",
                    figure(row["k"]),
                    f"{row['active_share']:.1%}",
                    figure(float(row["perplexity"]), 1),
                    figure(row["nmi_category"]),
                    figure(row["category_depth"]),
                    figure(row["duplicates"]),
                ]
            }
            for row in rows
        ),
    )


def churn(found: Mapping[str, Any]) -> Table:
    """What became of the previous vocabulary's ids, and of the bags of entities that both runs know; no rows when this
    vocabulary is the first."""
    return table(
        "Since the vocabulary before",
        "Interests are matched to those of the previous vocabulary, so that an id goes on to mean the same. Kept: ids "
        "that both have. New and retired: ids that only this or only the previous one has; a retired id is never given "
        "again. Main interest changed: share of the people, products and advertisers known to both whose strongest "
        "interest has another id than before, at this vocabulary's date; in brackets, had nothing been matched.",
        ["Level", "Kept", "New", "Retired", "Main interest changed", "Change of a bag"],
        ({"cells": _churned(row)} for row in found.get("levels", ()) if found.get("previous")),
    )


def _churned(row: Row) -> list[str]:
    counts = [figure(row[name]) for name in ("kept", "minted", "retired")]
    pairs = ((row.get(name), row.get(f"raw_{name}")) for name in ("strongest_changed", "bag_change"))
    return [f"Level {row['level']}", *counts, *("–" if one is None else f"{one:.1%} ({raw:.1%})" for one, raw in pairs)]


def search_index(metrics: Mapping[str, Any]) -> Table:
    """Size and recall of each nearest-neighbour index, as the index stage measured them."""
    vectors, recall = metrics.get("vectors", {}), metrics.get("recall@10", {})
    return table(
        "The search index",
        "Recall@10: the share of the ten nearest vectors found by exact search that the index finds too; 1 is all.",
        ["Index of", "Vectors", "Recall@10"],
        ({"cells": [f"{kind}s", figure(vectors[kind]), figure(float(recall[kind]), 4)]} for kind in sorted(vectors)),
    )


def collect_manifests(inputs: Mapping[str, ArtifactRef]) -> list[ArtifactRef]:
    """Every artifact the report rests on, reached through the manifests, in an order where causes come first.

    An artifact that is no longer in the store is left out.
    """
    found: dict[str, ArtifactRef] = {}

    def visit(ref: ArtifactRef) -> None:
        if ref.stage in found or not (ref.path / "manifest.json").exists():
            return
        for stage, key in sorted(ref.manifest.get("inputs", {}).items()):
            visit(ArtifactRef(stage, key, ref.path.parent.parent / stage / key))
        found[ref.stage] = ref

    for _, ref in sorted(inputs.items()):
        visit(ref)
    return list(found.values())


def cost(refs: Sequence[ArtifactRef]) -> Table:
    """Seconds, peak memory, rows and bytes of each stage, from the manifests."""
    spent = [(ref, ref.manifest.get("duration_s"), ref.manifest.get("peak_rss_mb")) for ref in refs]
    longest = max((seconds or 0.0 for _, seconds, _ in spent), default=0.0) or 1.0
    highest = max((peak or 0.0 for _, _, peak in spent), default=0.0)
    total = sum(seconds or 0.0 for _, seconds, _ in spent)
    rows: list[Row] = [
        {
            "cells": [ref.stage, figure(seconds, 1), figure(peak, 0), figure(_bytes(ref) / 1e6, 1)],
            "bars": {1: round(100 * (seconds or 0.0) / longest), 2: round(100 * (peak or 0.0) / (highest or 1.0))},
        }
        for ref, seconds, peak in spent
    ]
    size = sum(_bytes(ref) for ref in refs) / 1e6
    rows.append({"cells": ["All stages", figure(total, 1), figure(highest, 0), figure(size, 1)], "strong": True})
    return table(
        "Time and memory by stage",
        "What each step took when it ran; steps are listed in the order in which they depend on each other. "
        "Peak memory of all stages is the highest of them.",
        ["Stage", "Seconds", "Peak memory, MB", "Written, MB"],
        rows,
    )


def _bytes(ref: ArtifactRef) -> int:
    return sum(listed["bytes"] for listed in ref.manifest["files"].values())
