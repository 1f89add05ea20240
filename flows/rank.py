"""`strata rank USER`: candidates of one user by the published ranker, through the same service that others embed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from data import snapshot
from data.artifacts import Store
from data.errors import BadDataError, UsageError, nearest
from data.schema import from_micros, to_micros
from data.snapshot import Snapshot
from flows.inspection import instant
from flows.newcomers import read_file
from flows.summary import wide_console


@dataclass(frozen=True)
class Question:
    """Who is asked for, among which products (a file; None for all), how many of them, at which time and place."""

    user_id: str
    candidates: Path | None
    top: int
    at: str | None
    surface: str | None
    fit: str


def rank(store: Store, snapshot_id: str | None, question: Question) -> dict[str, Any]:
    """The `top` candidates, best first, with `score` (bought on the visit) and `deep` (bought again, given that).

    Raises UsageError for a wrong file, time, surface or fit, BadDataError for a snapshot without a ranker.
    """
    until = None if question.at is None else to_micros(instant(question.at))
    listed = None if question.candidates is None else read_candidates(question.candidates)
    published = snapshot.load(store, snapshot_id)
    from ranking.serve import INPUTS, RankerService

    service = RankerService.open(
        published.ref(store, "ranker"), {name: published.ref(store, name) for name in INPUTS}, question.fit
    )
    ts = published.as_of if until is None else until
    products = service.products_known(ts) if listed is None else listed
    found = service.rank(question.user_id, products, ts, question.surface)
    titles = _titles(store, published)
    rows = zip(found.product_id, found.score.tolist(), found.deep.tolist(), found.known.tolist(), strict=True)
    return {
        "user_id": question.user_id,
        "cold": found.cold,
        "at": from_micros(ts).isoformat(),
        "fit": question.fit,
        "candidates": len(products),
        "products": [
            {"product_id": name, "title": titles.get(name), "score": score, "deep": deep, "known": known}
            for name, score, deep, known in list(rows)[: question.top]
        ],
    }


def read_candidates(path: Path) -> list[str]:
    """Column product_id of a CSV or Parquet file; raises UsageError for other columns, BadDataError for an empty id."""
    table = read_file(path)
    for name in table.column_names:
        if name != "product_id":
            raise UsageError(f"{path}: unknown column {name!r}: {nearest(name, ['product_id'])}")
    ids = [None if value is None else str(value) for value in table["product_id"].to_pylist()]
    if not all(ids):
        row = next(number for number, name in enumerate(ids, start=1) if not name)
        raise BadDataError(f"{path}, row {row}: expected a product_id, got none")
    return [name for name in ids if name]


def _titles(store: Store, published: Snapshot) -> dict[str, str | None]:
    if "index" not in published.stages:
        return {}
    from hierarchy.query import read_table

    table = read_table(published.ref(store, "index"), "entities_product.parquet", ["entity_id", "title"])
    return dict(zip(table["entity_id"].to_pylist(), table["title"].to_pylist(), strict=True))


def render(found: dict[str, Any]) -> None:
    """Print the candidates, best first."""
    cold = ", who has no history by then" if found["cold"] else ""
    print(f"user {found['user_id']}{cold}, {found['candidates']:,} candidates at {found['at']}, fit {found['fit']}")
    table = Table("bought", "again", "product", "title", box=SIMPLE)
    for row in found["products"]:
        title = row["title"] or ("" if row["known"] else "(unknown)")
        table.add_row(f"{row['score']:.5f}", f"{row['deep']:.2f}", row["product_id"], title)
    wide_console().print(table)
