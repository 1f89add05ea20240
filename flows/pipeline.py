"""The whole path as one flow: every stage in order, then one published snapshot.

`direct` calls the stages in this process; `orchestrated` runs the very same calls as Prefect tasks. Keys are equal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from data import snapshot
from data.artifacts import ArtifactRef, Store
from data.context import RunContext
from data.progress import Progress
from data.schema import to_micros
from data.snapshot import Snapshot
from flows import media, previous, vocabularies
from flows.config import PipelineConfig, Stage
from flows.tasks import git_state, library_versions, run_stage

Runner = Callable[[Stage, PipelineConfig, Mapping[str, ArtifactRef], Store, RunContext], ArtifactRef]


@dataclass(frozen=True)
class Outcome:
    """What a run made: the artifact of each stage, and the snapshot, which a run that stops early does not publish."""

    refs: dict[str, ArtifactRef]
    snapshot: Snapshot | None


def direct(
    config: PipelineConfig, store: Store, progress: Progress, until: str | None = None, publish: bool = False
) -> Outcome:
    """Run every stage, or those up to `until`, in this process without any server.

    A whole run publishes a snapshot; with `publish` one that stops early does too, once it has an index: that of a day
    on which tokens and index are renewed and the ranker stays.
    """
    return _run(config, store, progress, run_stage, until, publish)


def orchestrated(
    config: PipelineConfig, store: Store, progress: Progress, until: str | None = None, publish: bool = False
) -> Outcome:
    """The same as a Prefect flow in this process; the server is the one of PREFECT_API_URL, else a temporary one."""
    _prefect_defaults(store)
    from prefect import flow, task
    from prefect.cache_policies import NO_CACHE

    def stage_task(stage: Stage, *rest: Any) -> ArtifactRef:
        # Our key decides reuse, so Prefect neither caches nor stores results; only ArtifactRefs pass.
        wrapped = task(name=stage.name, cache_policy=NO_CACHE, persist_result=False)(run_stage)
        return wrapped(stage, *rest)

    @flow(name="strata", validate_parameters=False, persist_result=False)
    def strata(run_name: str) -> Outcome:
        return _run(config, store, progress, stage_task, until, publish)

    return strata(os.fspath(store.root))


def _run(
    config: PipelineConfig, store: Store, progress: Progress, runner: Runner, until: str | None, publish: bool
) -> Outcome:
    now = to_micros(datetime.now(UTC))
    config = media.with_media(config, store)
    ctx = RunContext(seed=config.seed, device=config.device, threads=config.threads, now=now, progress=progress)
    record = RunRecord(store, config)
    refs: dict[str, ArtifactRef] = {}
    for stage in previous.upto(until):
        inputs = {name: refs[name] for name in stage.inputs}
        earlier = previous.resolve(stage, config, inputs, store)
        if earlier is not None:
            inputs["previous"] = earlier
        inputs |= vocabularies.previous(stage, config, refs, store)
        refs[stage.name] = runner(stage, config, inputs, store, ctx)
        record.finished(refs[stage.name])
    if until is not None:
        record.log(f"stopped after {until}")
        if not publish:
            return Outcome(refs, None)
    emitted = refs["embeddings"].metrics
    vocab_version = refs["supergraph"].metrics["vocab_version"]
    published = snapshot.publish(store, refs, vocab_version, emitted["model_version"], emitted["last_as_of"])
    record.published(published)
    return Outcome(refs, published)


class RunRecord:
    """runs/<run_id>/ beside the store: what was asked, on what, and which artifacts came of it."""

    def __init__(self, store: Store, config: PipelineConfig) -> None:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        self.folder = store.root.parent / "runs" / f"{stamp}-{os.getpid()}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.refs: dict[str, str] = {}
        self._write("config.json", config.model_dump(mode="json"))
        self._write("environment.json", {**library_versions(), **git_state(), "argv": sys.argv[1:]})
        self.log("started")

    def finished(self, ref: ArtifactRef) -> None:
        """Note one finished or reused stage."""
        self.refs[ref.stage] = ref.key
        self._write("refs.json", self.refs)
        line = {"stage": ref.stage, "key": ref.key, "duration_s": ref.manifest.get("duration_s"), **ref.metrics}
        with open(self.folder / "metrics.jsonl", "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
        self.log(f"{ref.stage} {ref.key}")

    def published(self, published: Snapshot) -> None:
        """Note the snapshot that the run ended in."""
        self._write("snapshot.json", asdict(published))
        self.log(f"published {published.id}")

    def log(self, text: str) -> None:
        """One dated line in log.txt."""
        with open(self.folder / "log.txt", "a", encoding="utf-8") as stream:
            stream.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {text}\n")

    def _write(self, name: str, value: Any) -> None:
        (self.folder / name).write_text(json.dumps(value, indent=1, default=str), encoding="utf-8")


def _prefect_defaults(store: Store) -> None:
    """Settings that must stand before Prefect is imported; a value the user set is kept.

    A home of its own per store keeps two runs from locking one SQLite file; 20 s, Prefect's own limit for the
    temporary server's start, is too short on a busy machine; nothing is sent anywhere.
    """
    home = store.root / "work" / "prefect"
    defaults = {
        "PREFECT_HOME": str(home.resolve()),
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_LOGGING_LEVEL": "WARNING",
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    Path(os.environ["PREFECT_HOME"]).mkdir(parents=True, exist_ok=True)
