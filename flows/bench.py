"""`strata bench`: starts a benchmark of the checkout and reads the rows it appended; nothing is measured here."""

from __future__ import annotations

import ast
import csv
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE
from rich.table import Table

from data.codehash import ROOT
from data.errors import StrataError, SystemStateError, UsageError, nearest
from flows.summary import wide_console

FOLDER = ROOT / "tests" / "benchmarks"
_SHOWN = ("what", "peer", "metric", "unit", "p20", "p50", "p80")


def benchmarks(folder: Path = FOLDER) -> dict[str, str]:
    """First sentence of what each benchmark says of itself, by name.

    Raises SystemStateError outside a checkout: benchmarks compare with other libraries and are not installed.
    """
    if not folder.is_dir():
        raise SystemStateError(f"expected benchmarks in {folder}, found none: run `strata bench` from a checkout")
    found = {}
    for path in sorted(folder.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
            found[path.stem] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return found


def run(name: str, options: Sequence[str], folder: Path = FOLDER) -> list[dict[str, str]]:
    """Run benchmark `name` with its own `options`, its output on standard error; returns the rows it appended.

    Raises UsageError for an unknown name, StrataError when the benchmark fails.
    """
    known = benchmarks(folder)
    if name not in known:
        raise UsageError(f"no benchmark {name!r}: {nearest(name, known)}")
    before = _counts(folder)
    command = [sys.executable, "-m", f"tests.benchmarks.{name}", *options]
    code = subprocess.run(command, cwd=folder.parents[1], stdout=sys.stderr).returncode
    if code:
        failure = StrataError(
            f"benchmark {name} ended with exit code {code}; only what had passed its checks was written"
        )
        failure.exit_code = code
        raise failure
    return [row for file in _files(folder) for row in _rows(file)[before.get(file, 0) :]]


def _files(folder: Path) -> list[Path]:
    """All tables of results: a benchmark may append to that of another one about the same thing."""
    return sorted((folder / "results").glob("*.csv"))


def _counts(folder: Path) -> dict[Path, int]:
    return {file: len(_rows(file)) for file in _files(folder)}


def _rows(file: Path) -> list[dict[str, str]]:
    with open(file, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def render_names(known: dict[str, str]) -> None:
    """Print every benchmark with what it measures."""
    for name, line in known.items():
        print(f"{name:<10} {line}")


def render(rows: list[dict[str, str]]) -> None:
    """Print the rows of one run, a table for each shape."""
    for shape in dict.fromkeys(row["shape"] for row in rows):
        table = Table(*_SHOWN, title=shape, title_justify="left", box=SIMPLE)
        for row in (row for row in rows if row["shape"] == shape):
            table.add_row(*(row[column] for column in _SHOWN))
        wide_console().print(table)
