"""The series that pictures show, read from the rows of result files; the newest row of each place counts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

Row = Mapping[str, str]
BUCKETS = ("0", "1-5", "6-20", "21+")
_RECALL = re.compile(r"recall@\d+")
_LEVEL = re.compile(r"level (\d+), K (\d+)")


class Mark(NamedTuple):
    """A value with the ends of its interval, NaN where it has none; `ours`: measured here, not published."""

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    ours: bool = True


class Panel(NamedTuple):
    """One frame of a picture: a title, what is measured, and marks."""

    title: str
    measure: str
    marks: list[Mark]


class Lines(NamedTuple):
    """A frame of lines: the names of the places, and for each line its value there, NaN where there is none."""

    title: str
    measure: str
    places: tuple[str, ...]
    lines: dict[str, list[float]]


def retrieval(rows: Iterable[Row]) -> dict[str, list[Panel]]:
    """By set a panel for each exam and question: recall of the methods and what was published, the best first.

    The interval is that of the paired difference to the reference, put at the reference's value; the reference has
    none.
    """
    cells = _cells(rows)
    found: dict[str, list[Panel]] = {}
    for what in _distinct(cells, 0):
        name, _, rest = what.partition(", ")
        if rest == "published":
            continue
        depth = _depth(cells, what)
        if depth:
            marks = _marks(cells, what, depth) + _published(cells, name, depth)
            ranked = sorted(marks, key=lambda mark: -mark.value)
            found.setdefault(name, []).append(Panel(rest, depth, ranked))
    return found


def degrees(rows: Iterable[Row]) -> dict[str, Lines]:
    """By set recall over targets of rising degree, of the last exam that has such rows."""
    cells = _cells(rows)
    found: dict[str, Lines] = {}
    for what in _distinct(cells, 0):
        depth, (name, _, rest) = _depth(cells, what), what.partition(", ")
        lines = {
            peer: [cells.get((what, peer, f"{depth}, target degree {bucket}"), math.nan) for bucket in BUCKETS]
            for peer in _distinct(cells, 1)
        }
        lines = {peer: values for peer, values in lines.items() if any(value == value for value in values)}
        if depth and lines:
            there = [at for at in range(len(BUCKETS)) if any(values[at] == values[at] for values in lines.values())]
            kept = {peer: [values[at] for at in there] for peer, values in lines.items()}
            found[name] = Lines(rest, depth, tuple(BUCKETS[at] for at in there), kept)
    return found


def ablation(rows: Iterable[Row]) -> dict[str, list[Panel]]:
    """By set a panel for each recall: what each variant gains or loses against the whole recipe, in one order."""
    by_set: dict[str, dict[tuple[str, str], float]] = {}
    for row in rows:
        place = by_set.setdefault(row["shape"].partition(",")[0], {})
        place[row["what"], row["metric"]] = float(row["p50"])
    found = {}
    for name, cells in by_set.items():
        measures = [metric for metric in dict.fromkeys(m for _, m in cells) if metric.endswith(": difference")]
        if not measures:
            continue
        variants = {variant for variant, metric in cells if metric == measures[0]}
        order = sorted(variants, key=lambda variant: cells[variant, measures[0]])
        found[name] = [Panel("", metric, [_gap(cells, variant, metric) for variant in order]) for metric in measures]
    return found


def hierarchy(rows: Iterable[Row], metric: str = "NMI with categories") -> dict[str, list[Panel]]:
    """By set a panel for each level: agreement of every method with the categories, p20 to p80 over seeds."""
    found: dict[str, dict[str, dict[str, Mark]]] = {}
    for row in rows:
        level = _LEVEL.match(row["what"])
        if level and row["metric"] == metric:
            marks = found.setdefault(row["shape"].partition(",")[0], {}).setdefault(level[0], {})
            ends = (float(row[end]) if row[end] else math.nan for end in ("p20", "p80"))
            marks[row["peer"]] = Mark(row["peer"], float(row["p50"]), *ends)
    return {
        name: [
            Panel(level, metric, sorted(marks.values(), key=lambda mark: -mark.value))
            for level, marks in levels.items()
        ]
        for name, levels in found.items()
    }


def _cells(rows: Iterable[Row]) -> dict[tuple[str, str, str], float]:
    return {(row["what"], row["peer"], row["metric"]): float(row["p50"]) for row in rows}


def _distinct(cells: Mapping[tuple[str, str, str], float], column: int) -> list[str]:
    return list(dict.fromkeys(place[column] for place in cells))


def _depth(cells: Mapping[tuple[str, str, str], float], what: str) -> str:
    """The measure that methods are compared by: the one with buckets or differences, else the first recall."""
    metrics = [metric for w, _, metric in cells if w == what and metric.startswith("recall@")]
    detailed = [metric for metric in metrics if not _RECALL.fullmatch(metric)]
    found = _RECALL.match((detailed or metrics or [""])[0])
    return found[0] if found else ""


def _marks(cells: Mapping[tuple[str, str, str], float], what: str, depth: str) -> list[Mark]:
    values = {peer: value for (w, peer, metric), value in cells.items() if w == what and metric == depth}
    found = []
    for peer, value in values.items():
        ends = [math.nan, math.nan]
        for reference in values:
            gap = [cells.get((what, f"{peer} - {reference}", f"{depth} difference, {edge} %")) for edge in (2.5, 97.5)]
            if None not in gap:
                ends = [values[reference] + float(end or 0.0) for end in gap]
        found.append(Mark(peer, value, *ends))
    return found


def _published(cells: Mapping[tuple[str, str, str], float], name: str, depth: str) -> list[Mark]:
    """Published values under the name of the method alone."""
    return [
        Mark(f"{peer.partition(' (')[0]}, published", value, ours=False)
        for (what, peer, metric), value in cells.items()
        if what == f"{name}, published" and metric == depth
    ]


def _gap(cells: Mapping[tuple[str, str], float], variant: str, metric: str) -> Mark:
    ends = (cells.get((variant, f"{metric}, {edge} %"), math.nan) for edge in (2.5, 97.5))
    return Mark(variant, cells.get((variant, metric), math.nan), *ends)
