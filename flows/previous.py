"""Earlier artifacts that a run builds on: the log as it was at an earlier instant, and what was made from that.

Of one lineage are artifacts of a stage whose code, seed and result-affecting configuration are the same but for the
instant; the raw files may have grown.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from data.artifacts import ArtifactRef, Store
from data.codehash import code_hash
from data.errors import UsageError, nearest
from data.schema import SCHEMA_VERSION, to_micros
from flows.config import STAGES, PipelineConfig, Stage


def lineage(stage: Stage, config: PipelineConfig) -> str:
    """20 hex digits that artifacts of one growing log share: everything in the key but the instant and the input."""
    own = getattr(config, stage.name)
    fields = own.lineage_fields() if hasattr(own, "lineage_fields") else own.result_fields()
    causes = [stage.name, SCHEMA_VERSION, fields, config.seed, code_hash(stage.module.__name__.partition(".")[0])]
    return hashlib.sha256(json.dumps(causes, sort_keys=True).encode()).hexdigest()[:20]


def resolve(
    stage: Stage, config: PipelineConfig, inputs: Mapping[str, ArtifactRef], store: Store
) -> ArtifactRef | None:
    """The artifact that `stage` can build on, None when there is none or `as_of` is not set.

    Events: the newest of the same lineage with an earlier `as_of`. Graph and features: those made from the log that
    these events were built on, or from the nearest before it. Embeddings and tokens: the newest that end no later.
    """
    if config.events.as_of is None:
        return None
    as_of = to_micros(config.events.as_of)
    if stage.name == "events":
        return _earlier_events(stage, config, store, as_of)
    if stage.name in ("graph", "features"):
        return _made_from_earlier(stage, config, store, inputs["events"])
    return _earlier_dates(stage, config, store, as_of) if stage.name in ("embeddings", "tokens") else None


def altered(stage: Stage, config: PipelineConfig, store: Store, seen: Mapping[str, str]) -> str | None:
    """Why `stage` is made anew although the store has an artifact of its lineage; None when there is none, or when it
    looks at whole inputs. `seen`: digests of what it looks at, by input."""
    found = [
        (manifest["finished_at"], key, manifest["seen"])
        for key, manifest in _of_lineage(store, stage.name, lineage(stage, config))
        if "seen" in manifest
    ]
    if not found:
        return None
    _, key, before = max(found, key=lambda entry: entry[:2])
    names = sorted(name for name, digest in seen.items() if before.get(name) != digest)
    if not names:
        return None
    return f"! {stage.name} is made anew: what {stage.name} {key} saw of {', '.join(names)} was altered since"


def _earlier_events(stage: Stage, config: PipelineConfig, store: Store, as_of: int) -> ArtifactRef | None:
    found = [
        (manifest["metrics"]["as_of"], manifest["finished_at"], key)
        for key, manifest in _of_lineage(store, stage.name, lineage(stage, config))
        if (manifest["metrics"]["as_of"] or as_of) < as_of
    ]
    return store.get(stage.name, max(found)[-1]) if found else None


def _made_from_earlier(stage: Stage, config: PipelineConfig, store: Store, events: ArtifactRef) -> ArtifactRef | None:
    made_from = {
        manifest["inputs"]["events"]: key for key, manifest in _of_lineage(store, stage.name, lineage(stage, config))
    }
    key = events.manifest["inputs"].get("previous")
    while key is not None and key not in made_from:
        earlier = store.find("events", key)
        key = None if earlier is None else earlier.manifest["inputs"].get("previous")
    return None if key is None else store.get(stage.name, made_from[key])


def _earlier_dates(stage: Stage, config: PipelineConfig, store: Store, as_of: int) -> ArtifactRef | None:
    found = [
        (manifest["metrics"]["last_as_of"], manifest["finished_at"], key)
        for key, manifest in _of_lineage(store, stage.name, lineage(stage, config))
        if manifest["metrics"]["last_as_of"] <= as_of
    ]
    return store.get(stage.name, max(found)[-1]) if found else None


def _of_lineage(store: Store, stage: str, wanted: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted((store.root / stage).glob("[!.]*/manifest.json")):
        manifest = ArtifactRef(stage, path.parent.name, path.parent).manifest
        if manifest.get("lineage") == wanted:
            yield path.parent.name, manifest


def check_instant(config: PipelineConfig, until: str | None) -> None:
    """Raise UsageError when a stage of the run would have no data by `as_of`: before anything is opened."""
    as_of, stages = config.events.as_of, upto(until)
    if as_of is None:
        return
    for stage in stages:
        cut = getattr(config.cuts, stage.needs) if stage.needs else None
        if cut is not None and as_of <= cut:
            last = STAGES[STAGES.index(stage) - 1].name
            raise UsageError(
                f"as_of {as_of.date()} leaves stage {stage.name!r} without data: "
                f"expected an instant after cuts.{stage.needs}, which is {cut.date()}.\n"
                f"Choose a later --as-of, or stop earlier with --until {last}."
            )


def check_publishable(until: str | None) -> None:
    """Raise UsageError when a run that stops after `until` would have nothing to publish."""
    if until is not None and "index" not in [stage.name for stage in upto(until)]:
        raise UsageError(f"--publish needs an index, which a run --until {until} does not make: stop at index or later")


def upto(until: str | None) -> tuple[Stage, ...]:
    """The stages of a run that stops after `until`, all if None; raises UsageError when there is no such stage."""
    names = [stage.name for stage in STAGES]
    if until is not None and until not in names:
        raise UsageError(f"unknown stage {until!r}: {nearest(until, names)}. In order: {', '.join(names)}.")
    return STAGES if until is None else STAGES[: names.index(until) + 1]
