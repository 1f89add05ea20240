"""Run a preset from an empty store and append seconds and peak memory of each stage to results/pipeline.csv.

    python -m tests.benchmarks.pipeline --preset demo [--prefect] [--keep STORE]

Rows are written only when the run published a snapshot and `verify` found every file as written.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from data import snapshot
from data.artifacts import Store
from flows import inspection
from tests.benchmarks import rows


def main() -> None:
    """Run, verify, append."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="demo")
    parser.add_argument("--prefect", action="store_true", help="through Prefect; default is --direct")
    parser.add_argument("--keep", type=Path, help="leave the store here (it must be empty or absent)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = options.keep or Path(scratch) / "store"
        mode = "prefect" if options.prefect else "direct"
        found = [_timed(options.preset, root, mode, "first run"), _timed(options.preset, root, mode, "second run")]
        found += _stages(Store(root))
        append(found, f"{options.preset} {mode}", Store(root))


def _timed(preset: str, root: Path, mode: str, what: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "flows", "run", "--preset", preset, "--store", str(root)]
    started = time.monotonic()
    subprocess.run(command + (["--direct"] if mode == "direct" else []), check=True)
    return {"what": what, "metric": "wall time", "unit": "s", "p50": round(time.monotonic() - started, 1)}


def _stages(store: Store) -> list[dict[str, Any]]:
    inspection.verify(store, None)
    found = snapshot.load(store)
    timed = []
    for stage in found.stages:
        manifest = found.ref(store, stage).manifest
        for field, metric, unit in (("duration_s", "stage time", "s"), ("peak_rss_mb", "peak memory", "MB")):
            timed.append({"what": stage, "metric": metric, "unit": unit, "p50": manifest[field]})
    return timed


def append(found: list[dict[str, Any]], shape: str, store: Store) -> None:
    """Append the rows `found` in the run published in `store`; commit and versions are that run's."""
    made = snapshot.load(store).ref(store, "report").manifest
    versions, sha = rows.versions_text(made["versions"]), made["code"]["git_sha"]
    rows.append("pipeline", found, shape=shape, versions=versions, git_sha=sha)


if __name__ == "__main__":
    main()
