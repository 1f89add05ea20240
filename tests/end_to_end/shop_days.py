"""A shop that opens a product on a day: its files as they lie there on each day, and the run of that day."""

from __future__ import annotations

import csv
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

from data.artifacts import ArtifactRef, Store
from data.progress import Progress
from data.schema import to_micros

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
NEW, NEW_USER = "p777", "u777"
OPENED = datetime(2024, 3, 1, 9, tzinfo=UTC)
"""When the new product was listed; the new user buys it an hour later."""


def shop(folder: Path, opened: bool = True) -> Path:
    """The shop's files in `folder`; with `opened`, the new product and user are among them."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in FIXTURES.glob("shop*"):
        shutil.copy(path, folder)
    if opened:
        listed = to_micros(OPENED) // 1000
        append(
            folder / "shop_products.csv",
            [NEW, "a01", "Espresso Grinder", "Drinks > Coffee > Espresso Beans", "Odd", listed],
        )
        bought = [f"new{place}" for place in range(3)]
        for place, key in enumerate(bought):
            at = listed + 3_600_000 * (place + 1)
            append(folder / "shop_events.csv", [key, NEW_USER, NEW, "a01", "", "bought", at, at, 1, "web", ""])
    return folder


def append(path: Path, row: list) -> None:
    """One row more, its fields in the order of the header."""
    with open(path, "a", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerow(row)


def run(
    folder: Path | str, store: Path | str, as_of: str, until: str = "index", log: Path | str = os.devnull
) -> dict[str, ArtifactRef]:
    """Run the pipeline on the files of `folder` up to stage `until`, and note what it says in `log`."""
    from flows import pipeline
    from flows.config import load_config
    from flows.presets import named

    settings = load_config(named("demo"), Path(folder) / "shop.toml", {"events": {"as_of": as_of}})
    with open(log, "a", buffering=1, encoding="utf-8") as stream:
        return pipeline.direct(settings, Store(store), Progress(stream), until).refs
