"""One run of the benchmark: where its files are, the rows it has gathered, and builds of our own."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data.artifacts import ArtifactRef, Store
from data.generator.config import Config
from data.parts import EVENT_PARTS
from tests.benchmarks import children, rows
from tests.benchmarks.graph_build import ours

PLAIN: dict[str, Any] = {"engagement": [], "guards": None, "co_engagement": None}
"""Options under which our build gives what the peers give: the relations of events, nothing cut and nothing derived."""

FULL: dict[str, Any] = {}
"""The stage as it comes: guards, merged engagement, co-engagement."""

CONFIGS = {"plain": PLAIN, "everything": FULL}

QUIET_LOAD = 0.5
"""Load average up to which the machine counts as our own."""


@dataclass
class Bench:
    """The log under measurement, options, and rows not yet written."""

    store: Store
    folder: Path
    whole: ArtifactRef
    config: Config
    repeats: int
    limit_gib: float
    load: float
    entities_of: int | None = None
    configs: dict[str, dict[str, Any]] = field(default_factory=lambda: CONFIGS)
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def events(self) -> int:
        """Events of the log."""
        return self.whole.rows(EVENT_PARTS)

    def say(self, text: str) -> None:
        """One line of news."""
        print(text, file=sys.stderr, flush=True)

    def add(self, what: str, peer: str, metric: str, unit: str, samples: Any, shape: str = "") -> None:
        """A row of `samples` (floats in any sequence); `shape` is that of the log when it is not given."""
        measured = {"what": what, "peer": peer, "metric": metric, "unit": unit, **rows.spread(samples)}
        self.rows.append(measured | {"shape": shape or self.shape(self.events), "dtype": "int32 ids; int64 us"})

    def shape(self, events: int) -> str:
        """Size of a log of `events`, and whether the machine did other work."""
        busy = f", beside other work (load {self.load:.1f})" if self.load > QUIET_LOAD else ""
        nodes = f", entities of {self.entities_of:,} events" if self.entities_of else ""
        return f"{events:,} events{nodes}, {self.config.days} days{busy}"

    def flush(self) -> None:
        """Append the gathered rows to the result file: called when the checks of a part have passed."""
        versions = rows.versions_of("polars", "pandas")
        rows.append("graph", self.rows, versions=versions, git_sha=rows.commit())
        self.rows.clear()

    def build(
        self,
        key: str,
        events: ArtifactRef,
        options: dict[str, Any],
        previous: ArtifactRef | None = None,
    ) -> tuple[ArtifactRef, children.Measured]:
        """Build the graph of `events` as artifact `key`, in its own process."""
        request = self.folder / f"{key}.json"
        ours.write_request(request, key, events.key, options, previous and previous.key)
        done = children.run("tests.benchmarks.graph_build.ours", [str(self.store.root), str(request)])
        stage = f"stage {done.said['stage']:.1f} s, {done.said['cpu']:.1f} CPU s, sealed in {done.said['seal']:.1f} s"
        steps = done.said["metrics"]["increment"]["seconds"]
        self.say(f"strata {key}: {stage}, {done.peak_mb:,.0f} MB; {steps}")
        return self.store.get("graph", key), done

    def drop(self, ref: ArtifactRef) -> None:
        """Remove an artifact that is no longer needed."""
        shutil.rmtree(ref.path)
