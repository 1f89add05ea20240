"""Pictures of the result tables: recall by method, recall by degree, levels against categories, what an ablation loses.

    strata bench plots -- [--results FOLDER] [--out FOLDER] [--formats svg,png]

Reads retrieval.csv, hierarchy.csv and ablation.csv, those of them that are there, and measures nothing.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data.errors import StrataError, SystemStateError, UsageError
from tests.benchmarks import rows
from tests.benchmarks.pictures import figures

FORMATS = ("svg", "png")
_INTERVAL = "whiskers: 95 % of the difference to the reference over users, paired; hollow: published"
_SEEDS = "whiskers: p20 to p80 over seeds"
_LOST = "difference to the whole recipe on validation; whiskers: 95 % over users; coloured where they leave out zero"


def main() -> None:
    """Draw every picture that there are rows for, and say where it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--results", type=Path, default=rows.RESULTS, help="folder of the tables (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/plots"), help="folder for the pictures")
    parser.add_argument("--formats", default="svg", help=f"any of {','.join(FORMATS)}")
    try:
        _run(parser.parse_args())
    except StrataError as error:
        print(f"plots: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _run(options: argparse.Namespace) -> None:
    formats = options.formats.split(",")
    if not set(formats) <= set(FORMATS):
        raise UsageError(f"expected --formats of {', '.join(FORMATS)}, got {options.formats}")
    if importlib.util.find_spec("matplotlib") is None:
        raise SystemStateError("expected matplotlib, found none: pip install -e '.[bench]'")
    from tests.benchmarks.pictures import drawing

    drawn = 0
    for name, figure in _figures(options.results, drawing):
        for ending in formats:
            file = options.out / f"{name}.{ending}"
            drawing.save(figure, file)
            print(file)
        drawn += 1
    if not drawn:
        raise UsageError(
            f"expected retrieval.csv, hierarchy.csv or ablation.csv with rows in {options.results}, got none"
        )


def _figures(folder: Path, drawing: Any) -> Iterator[tuple[str, Any]]:
    """Name and picture, one after the other."""
    retrieval = _rows(folder / "retrieval.csv")
    for name, panels in figures.retrieval(retrieval).items():
        yield f"retrieval-{name}", drawing.panels(f"Retrieval, {name}", panels, _INTERVAL)
    for name, lines in figures.degrees(retrieval).items():
        yield f"degrees-{name}", drawing.lines(f"Recall by degree, {name}", lines, "buckets of 500 targets or more")
    for name, panels in figures.hierarchy(_rows(folder / "hierarchy.csv")).items():
        yield f"hierarchy-{name}", drawing.panels(f"Levels and categories, {name}", panels, _SEEDS)
    for name, panels in figures.ablation(_rows(folder / "ablation.csv")).items():
        yield f"ablation-{name}", drawing.panels(f"Ablation, {name}", panels, _LOST, difference=True)


def _rows(file: Path) -> list[dict[str, str]]:
    if not file.exists():
        return []
    with open(file, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


if __name__ == "__main__":
    main()
