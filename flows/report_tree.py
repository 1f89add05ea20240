"""The whole hierarchy as an outline to read and judge, and the flow between broad interests as a matrix; no scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data.artifacts import ArtifactRef
from flows.report_map import Interest

_MOST = 24  # broad interests of the matrix, the heaviest
_TERMS, _PRODUCTS = 5, 4
_SAID = {
    "then": "What people turn to next",
    "co": "What people choose together",
}
_EXPLAINED = {
    "then": "Read along a row: of what people chose soon after something of that interest, beyond what chance would "
    "give, the percentage that went to each other interest. Where there is a clock, recent events count more.",
    "co": "Read along a row: of what people chose in the same stretch of time as something of that interest, beyond "
    "what chance would give, the percentage of each other interest. Where there is a clock, recent events count more.",
}


def outline(interests: Sequence[Interest]) -> list[dict[str, Any]]:
    """The interests as nested nodes, heaviest first: id, label, share, hue, terms, products, children, and `below`, how
    many interests of each finer level there are under it.

    `interests` are those of the map, parents before children, with titles of products.
    """
    nodes = [
        {
            **{name: interest[name] for name in ("id", "level", "label", "share", "hue")},
            "terms": interest["terms"][:_TERMS],
            "products": interest["products"][:_PRODUCTS],
            "children": [],
            "below": {},
        }
        for interest in interests
    ]
    for place in reversed(range(len(nodes))):
        node, parent = nodes[place], interests[place]["parent"]
        if parent >= 0:
            above = nodes[parent]
            above["children"].insert(0, node)
            for level, count in [(node["level"], 1), *node["below"].items()]:
                above["below"][level] = above["below"].get(level, 0) + count
    return [node for node, interest in zip(nodes, interests, strict=True) if interest["parent"] < 0]


def matrix(interests: Sequence[Interest], supergraph: ArtifactRef, event_type: str) -> dict[str, Any] | None:
    """The flow between the heaviest interests of the coarsest level: title, lead, names and rows of cells, each None or
    {share, shade} with shade 1 for the strongest of the matrix; None when nothing flows.

    Neighbours on the map lie side by side, so that flow within a neighbourhood lies about the diagonal. Directed where
    the vocabulary knows it, by `event_type` if there is flow of that type.
    """
    coarsest = [interest for interest in interests if interest["level"] == interests[0]["level"]][:_MOST]
    coarsest.sort(key=lambda interest: (interest["hue"], interest["id"]))
    place = {interest["id"]: index for index, interest in enumerate(coarsest)}
    edges = supergraph.table("primitive_edges.parquet").to_pylist()
    links = [edge for edge in edges if edge["source"] in place and edge["target"] in place]
    relation = _relation({edge["relation"] for edge in links}, event_type)
    if relation is None:
        return None
    chosen = [edge for edge in links if edge["relation"] == relation]
    strongest = max(edge["weight"] for edge in chosen)
    rows: list[list[dict[str, Any] | None]] = [[None] * len(coarsest) for _ in coarsest]
    for edge in chosen:
        cell = {"share": edge["weight"], "shade": round(edge["weight"] / strongest, 3)}
        rows[place[edge["source"]]][place[edge["target"]]] = cell
    kind = relation.partition("_")[0]
    return {"title": _SAID[kind], "lead": _EXPLAINED[kind], "interests": coarsest, "rows": rows, "relation": relation}


def _relation(known: set[str], event_type: str) -> str | None:
    wanted = [f"then_{event_type}", f"co_{event_type}"]
    others = sorted(known, reverse=True)
    return next((name for name in [*wanted, *others] if name in known and name.partition("_")[0] in _SAID), None)


def percent(share: float) -> str:
    """A share as the page writes it."""
    return f"{share:.0%}" if share >= 0.0995 else f"{share:.1%}"
