"""A published snapshot: one consistent set of artifacts, and the pointer CURRENT that names the newest one.

store/snapshots/<id>.json      stage -> key, vocab_version, model_version, as_of
store/CURRENT                  the published id, replaced by one atomic rename
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from data.artifacts import ArtifactRef, Store, full_disk_explained
from data.errors import BadDataError


@dataclass(frozen=True)
class Snapshot:
    """One consistent set of artifact keys. `as_of` [us] is the newest date of its embeddings."""

    id: str
    stages: dict[str, str]
    vocab_version: str
    model_version: str
    as_of: int

    def ref(self, store: Store, stage: str) -> ArtifactRef:
        """The artifact of `stage`; raises BadDataError when the snapshot has none or it is torn."""
        if stage not in self.stages:
            raise BadDataError(f"snapshot {self.id}: expected stage {stage!r}, got {sorted(self.stages)}")
        return store.get(stage, self.stages[stage])


def publish(
    store: Store, refs: Mapping[str, ArtifactRef], vocab_version: str, model_version: str, as_of: int
) -> Snapshot:
    """Write the snapshot of `refs` and point CURRENT at it; readers see the old one or the new one, nothing between."""
    stages = {name: ref.key for name, ref in refs.items()}
    identity = hashlib.sha256(json.dumps(stages, sort_keys=True).encode()).hexdigest()[:16]
    snapshot = Snapshot(identity, stages, vocab_version, model_version, as_of)
    with full_disk_explained(store.root):
        folder = store.root / "snapshots"
        folder.mkdir(parents=True, exist_ok=True)
        _replace(folder / f"{identity}.json", json.dumps(asdict(snapshot), indent=1))
        _replace(store.root / "CURRENT", identity + "\n")
    return snapshot


def load(store: Store, snapshot_id: str | None = None) -> Snapshot:
    """The snapshot named `snapshot_id`, or the CURRENT one; raises BadDataError when there is none."""
    if snapshot_id is None:
        pointer = store.root / "CURRENT"
        if not pointer.exists():
            raise BadDataError(f"no snapshot is published in {store.root}: run `strata demo` or `strata run` first")
        snapshot_id = pointer.read_text().strip()
    path = store.root / "snapshots" / f"{snapshot_id}.json"
    if not path.exists():
        known = sorted(p.stem for p in path.parent.glob("*.json")) if path.parent.exists() else []
        raise BadDataError(f"expected snapshot {snapshot_id!r} in {store.root}, got {known or 'none'}")
    try:
        return Snapshot(**json.loads(path.read_text()))
    except (ValueError, TypeError) as error:
        raise BadDataError(f"snapshot {path} is torn ({error}): run the pipeline again to republish it") from error


def published(store: Store) -> list[Snapshot]:
    """Every snapshot of the store, in order of id; raises BadDataError for a torn one."""
    return [load(store, path.stem) for path in sorted((store.root / "snapshots").glob("[!.]*.json"))]


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with open(draft, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(draft, path)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
