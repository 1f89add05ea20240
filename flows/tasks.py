"""One stage as one unit of work: look its key up, or run it and publish what it wrote."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from data.artifacts import ArtifactRef, Store, artifact_key
from data.codehash import ROOT, code_hash
from data.context import RunContext
from flows.config import PipelineConfig, Stage
from flows.previous import altered, lineage

LIBRARIES = (
    "duckdb",
    "faiss-cpu",
    "numpy",
    "prefect",
    "pyarrow",
    "scikit-learn",
    "torch",
    "torch-geometric",
    "transformers",
)


def stage_key(
    stage: Stage, config: PipelineConfig, inputs: Mapping[str, ArtifactRef], looked_at: Mapping[str, str] | None = None
) -> str:
    """The artifact key of `stage`: its code, result-affecting config, seed, inputs and raw files decide it.

    `looked_at`, what `seen` gives, stands for the inputs of which the stage looks at a part; found if left out.
    """
    part = seen(stage, config, inputs) if looked_at is None else looked_at
    own = getattr(config, stage.name)
    identity = getattr(stage.module, "source_identity", None)
    return artifact_key(
        stage.name,
        own.result_fields(),
        config.seed,
        {name: ref.key for name, ref in inputs.items() if name not in stage.spared} | dict(part),
        code_hash(stage.module.__name__.partition(".")[0]),
        identity(own) if identity else None,
    )


def seen(stage: Stage, config: PipelineConfig, inputs: Mapping[str, ArtifactRef]) -> dict[str, str]:
    """Digests of what `stage` looks at, by input, where that is only a part of the input; none for most stages."""
    looks = getattr(stage.module, "seen", None)
    return dict(looks(getattr(config, stage.name), inputs)) if looks else {}


def run_stage(
    stage: Stage, config: PipelineConfig, inputs: Mapping[str, ArtifactRef], store: Store, ctx: RunContext
) -> ArtifactRef:
    """The artifact of `stage`: found under its key, or made by `stage.module.run` and published.

    Raises what the stage raises; then nothing new is visible and its work folder is kept for the next try.
    """
    part = seen(stage, config, inputs)
    key = stage_key(stage, config, inputs, part)
    found = store.find(stage.name, key)
    if found is not None:
        ctx.progress.say(f"= {stage.name} {key} reused")
        return found
    why = altered(stage, config, store, part)
    if why is not None:
        ctx.progress.say(why)
    ctx.progress.say(f"> {stage.name} {key}")
    own = getattr(config, stage.name)
    causes = {
        "inputs": {name: ref.key for name, ref in inputs.items()},
        **({"seen": part} if part else {}),
        "config": own.model_dump(mode="json"),
        "seed": config.seed,
        "lineage": lineage(stage, config),
        "code": {"hash": code_hash(stage.module.__name__.partition(".")[0]), **git_state()},
        "versions": library_versions(),
    }
    with store.publish(stage.name, key, causes) as (out, extras):
        _reset_peak()
        started = time.monotonic()
        metrics = stage.module.run(own, inputs, out, ctx)
        extras["metrics"] = metrics
        extras["duration_s"] = round(time.monotonic() - started, 3)
        extras["peak_rss_mb"] = _peak_rss_mb()
        extras["finished_at"] = datetime.now(UTC).isoformat(timespec="seconds")
    ctx.progress.say(f"< {stage.name} {extras['duration_s']:.1f} s, {extras['peak_rss_mb']:,.0f} MB")
    return store.get(stage.name, key)


@cache
def git_state() -> dict[str, Any]:
    """Commit and dirty flag of the checkout; None outside a git checkout."""
    git = ("git", "-C", str(ROOT))
    with suppress(OSError, subprocess.CalledProcessError):
        sha = subprocess.run((*git, "rev-parse", "HEAD"), capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run((*git, "status", "--porcelain"), capture_output=True, text=True, check=True).stdout
        return {"git_sha": sha, "dirty": bool(changed.strip())}
    return {"git_sha": None, "dirty": None}


@cache
def library_versions() -> dict[str, str]:
    """Installed versions of the libraries that shape results, Python's own among them."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _reset_peak() -> None:
    with suppress(OSError):  # Linux only; elsewhere the peak is that of the process so far
        Path("/proc/self/clear_refs").write_text("5")


def _peak_rss_mb() -> float:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return round(int(line.split()[1]) / 1024, 1)
    import resource

    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
