"""Strata's own build: stage graph of an events artifact, published into the same store.

python -m tests.benchmarks.graph_build.ours STORE REQUEST, where REQUEST is a JSON file as `write_request` makes it
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from data.artifacts import Store
from data.context import RunContext
from graph import build
from tests.benchmarks.children import THREADS, measured


def write_request(file: Path, key: str, events: str, options: Mapping[str, Any], previous: str | None = None) -> None:
    """What to build: artifact keys, and options of the stage's Config by name."""
    file.write_text(json.dumps({"key": key, "events": events, "options": dict(options), "previous": previous}))


def work(root: Path, request: Path) -> dict[str, Any]:
    """Build and publish; returns seconds and CPU seconds of the stage, and seconds of its sealing (hashes, flush)."""
    asked = json.loads(request.read_text())
    pa.array(
        [1]
    )  # pyarrow's first array imports pandas where that is installed: an import, as all are outside the clock
    store = Store(root)
    inputs = {"events": store.get("events", asked["events"])}
    if asked["previous"]:
        inputs["previous"] = store.get("graph", asked["previous"])
    config = build.Config(**asked["options"])
    with store.publish("graph", asked["key"], {"config": config.model_dump(mode="json")}) as (out, extras):
        started, used = time.monotonic(), time.process_time()
        extras["metrics"] = build.run(config, inputs, out, RunContext(threads=THREADS))
        ended, cpu = time.monotonic(), time.process_time() - used
    seal = time.monotonic() - ended
    return {"stage": ended - started, "cpu": cpu, "seal": seal, "metrics": _figures(extras["metrics"])}


def _figures(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metrics.items() if name not in ("degrees",)}


if __name__ == "__main__":
    measured(work)
