"""The rows of tests/benchmarks/results/*.csv: one writer and one set of columns for every benchmark."""

from __future__ import annotations

import csv
import functools
import importlib.metadata
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from data.errors import UsageError

RESULTS = Path(__file__).parent / "results"
COLUMNS = (
    "what",
    "peer",
    "metric",
    "unit",
    "shape",
    "dtype",
    "p20",
    "p50",
    "p80",
    "machine",
    "versions",
    "git_sha",
    "date",
)


def shard(text: str) -> tuple[int, int]:
    """Place and count of "i/n". Raises UsageError unless 0 <= i < n."""
    place, _, count = text.partition("/")
    if not (place.isdigit() and count.isdigit() and int(place) < int(count)):
        raise UsageError(f"expected --shard i/n with 0 <= i < n, such as 0/4, got {text!r}")
    return int(place), int(count)


def spread(samples: Sequence[float]) -> dict[str, Any]:
    """p20, p50, p80 of repeated measurements, to five digits; one alone is a p50 with no spread."""
    if len(samples) == 1:
        return {"p20": "", "p50": _short(samples[0]), "p80": ""}
    marks = np.quantile(np.asarray(samples, np.float64), (0.2, 0.5, 0.8))
    return {name: _short(mark) for name, mark in zip(("p20", "p50", "p80"), marks, strict=True)}


def _short(value: float) -> float | int:
    return round(float(value)) if abs(value) >= 10_000 else float(f"{value:.5g}")


def versions_of(*peers: str) -> str:
    """Versions of the libraries that shape our results, then of `peers`, as name=version;..."""
    try:
        from flows.tasks import library_versions
    except ModuleNotFoundError:  # Prefect is not on every machine that measures
        return versions_text({name: importlib.metadata.version(name) for name in ("torch", "numpy", *peers)})
    found = library_versions()
    for name in peers:
        with suppress(importlib.metadata.PackageNotFoundError):
            found = found | {name: importlib.metadata.version(name)}
    return versions_text(found)


def versions_text(versions: Mapping[str, str]) -> str:
    """Versions by library as one cell."""
    return ";".join(f"{name}={version}" for name, version in versions.items())


def commit() -> str:
    """The commit of the checkout, marked "+" when files differ from it; "" without Prefect, where there is no git."""
    try:
        from flows.tasks import git_state
    except ModuleNotFoundError:
        return ""
    state = git_state()
    return f"{state['git_sha'] or ''}{'+' if state['dirty'] else ''}"


def machine(device: str = "cpu") -> str:
    """The processor in words, after the GPU if that is the `device`."""
    processor = f"{platform.machine()} {_cores()} cores CPU"
    if device == "cpu":
        return processor
    import torch  # here: most benchmarks need none

    return f"{torch.cuda.get_device_name(device)}, {processor}"


def append(name: str, rows: Iterable[Mapping[str, Any]], **common: Any) -> None:
    """Append rows to results/<name>.csv; `common` holds for all of them, and machine and date are filled in.

    A column that neither names stays empty; a key that is no column is an error.
    """
    write(RESULTS / f"{name}.csv", rows, **common)


def write(file: Path, rows: Iterable[Mapping[str, Any]], **common: Any) -> None:
    """Append rows to `file` as `append` does."""
    file.parent.mkdir(exist_ok=True)
    here = {"machine": machine(), "date": datetime.now(UTC).date().isoformat()}
    with open(file, "a", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, COLUMNS, restval="", lineterminator="\r\n")
        if not stream.tell():
            writer.writeheader()
        writer.writerows({**here, **common, **row} for row in rows)


def append_trials(log: Path, columns: Sequence[str], trials: Iterable[Mapping[str, Any]]) -> None:
    """Append trials of a search to its log, which begins with `columns`; commit and date are filled in."""
    log.parent.mkdir(parents=True, exist_ok=True)
    here = {"git_sha": _commit(), "date": datetime.now(UTC).date().isoformat()}
    with open(log, "a", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns, lineterminator="\r\n")
        if not stream.tell():
            writer.writeheader()
        writer.writerows({**here, **trial} for trial in trials)


@functools.cache
def _commit() -> str:
    """That of the process: a search of hours asks once."""
    return commit()


def hand_over(name: str, rows: Sequence[Mapping[str, Any]], file: str = "") -> None:
    """Append rows to results/<name>.csv, or write them to `file` as JSON lines, for `take_over` elsewhere: a machine
    that has torch but not all of the project's dependencies can only do the latter."""
    if file:
        Path(file).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        append(name, rows, git_sha=commit())


def take_over(name: str, file: str, sha: str = "") -> None:
    """Append what `hand_over` wrote to `file`, measured on commit `sha` (this one if empty)."""
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    append(name, [json.loads(line) for line in lines], git_sha=sha or commit())


def read(name: str) -> list[dict[str, str]]:
    """All rows of results/<name>.csv; none when there is no such file yet."""
    file = RESULTS / f"{name}.csv"
    if not file.exists():
        return []
    with open(file, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
