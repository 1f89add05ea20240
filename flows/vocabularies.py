"""Which published vocabulary a run's vocabulary goes on from, and which snapshots belong together in that way."""

from __future__ import annotations

from collections.abc import Mapping

from data import snapshot
from data.artifacts import ArtifactRef, Store
from data.errors import BadDataError, UsageError
from data.schema import to_micros
from data.snapshot import Snapshot
from flows.config import PipelineConfig, Stage
from hierarchy.public_ids import IDS

PREVIOUS = "previous"
"""How a command names the snapshot that another's vocabulary goes on from."""

_NEEDED = ("events", "embeddings", "supergraph")


def previous(
    stage: Stage, config: PipelineConfig, refs: Mapping[str, ArtifactRef], store: Store
) -> dict[str, ArtifactRef]:
    """The inputs by which `stage` goes on from the newest published snapshot of the same log whose vocabulary is of an
    earlier date, which is its t0; nothing for stages that do not, when it is switched off, or when there is none.

    `previous` and `previous_features` of the learner, `previous` and `previous_embeddings` of the supergraph,
    `previous_tokens` of the tokens. `refs`: the artifacts of this run so far. The date is t0, not the last day of the
    embeddings: days that share a vocabulary have one predecessor, so that it keeps its key from day to day.
    """
    wanted = _wanted(stage, config)
    if not wanted:
        return {}
    found = earlier(store, refs["events"].metrics["name"], to_micros(config.cuts.t0))
    if found is None:
        return {}
    # What only this stage needs may have been deleted from a snapshot whose vocabulary is still there.
    there = {name: store.find(of, found.stages[of]) for name, of in wanted.items() if of in found.stages}
    whole = {name: ref for name, ref in there.items() if ref is not None}
    return whole if len(whole) == len(wanted) else {}


def _wanted(stage: Stage, config: PipelineConfig) -> dict[str, str]:
    """The stage whose artifact of the earlier snapshot is each input."""
    if stage.name == "learner" and config.learner.warm_start:
        return {"previous": "learner", "previous_features": "features"}
    if stage.name == "supergraph":
        return {"previous": "supergraph", "previous_embeddings": "embeddings"}
    return {"previous_tokens": "tokens"} if stage.name == "tokens" and config.tokens.hysteresis else {}


def earlier(store: Store, name: str, t0: int) -> Snapshot | None:
    """The newest published snapshot of log `name` whose vocabulary is of a date before `t0` [us]; None when none is."""
    dated = [(_date(found, store, name), found) for found in snapshot.published(store)]
    before = [(date, found.as_of, found.id, found) for date, found in dated if date is not None and date < t0]
    return max(before)[-1] if before else None


def _date(found: Snapshot, store: Store, name: str) -> int | None:
    """The date [us] of a snapshot's vocabulary; None when it is of another log, was deleted, or has no public ids."""
    refs = {}
    for stage in _NEEDED:
        ref = store.find(stage, found.stages[stage]) if stage in found.stages else None
        if ref is None:
            return None
        refs[stage] = ref
    if refs["events"].metrics.get("name") != name or not refs["supergraph"].has(IDS):
        return None
    return int(refs["supergraph"].metrics["t0"])


def pair(store: Store, old: str | None, new: str | None) -> tuple[Snapshot, Snapshot]:
    """The two snapshots that a command means: `new` is the published one if left out, `old` the one before it.

    Raises BadDataError for an unknown id, UsageError when nothing was published before `new`.
    """
    later = snapshot.load(store, None if new in (None, "CURRENT") else new)
    if old not in (None, PREVIOUS):
        return snapshot.load(store, None if old == "CURRENT" else old), later
    before = [found for found in snapshot.published(store) if _comes_before(store, found, later)]
    if not before:
        known = [found.id for found in snapshot.published(store)]
        raise UsageError(
            f"snapshot {later.id} has none before it: expected one with an earlier t0 or as_of, got {known}.\n"
            "Run the pipeline with a later cuts.t0 or --as-of, or name two snapshots: strata tokens diff A B"
        )
    parent = _ref(store, later).manifest["inputs"].get("previous")
    return max(before, key=lambda found: (found.stages["supergraph"] == parent, *_when(store, found), found.id)), later


def _comes_before(store: Store, found: Snapshot, later: Snapshot) -> bool:
    keys = [(stage, found.stages.get(stage)) for stage in (*_NEEDED, "tokens")]
    whole = all(key is not None and store.find(stage, key) is not None for stage, key in keys)
    return whole and found.id != later.id and _when(store, found) < _when(store, later)


def _when(store: Store, found: Snapshot) -> tuple[int, int]:
    return _ref(store, found).metrics.get("t0", 0), found.as_of


def _ref(store: Store, found: Snapshot) -> ArtifactRef:
    return found.ref(store, "supergraph")


def descends(store: Store, old: Snapshot, new: Snapshot) -> bool:
    """Whether the vocabulary of `new` is that of `old` or was aligned to it, over any number of retrains between."""
    key: str | None = new.stages["supergraph"]
    while key is not None:
        if key == old.stages["supergraph"]:
            return True
        try:
            key = store.get("supergraph", key).manifest["inputs"].get("previous")
        except BadDataError:  # a vocabulary between them was deleted
            return False
    return False
