"""Where the pictures of a run's products lie: a source that brings them packed has them unpacked in the store."""

from __future__ import annotations

from pathlib import Path

from data.artifacts import Store, full_disk_explained
from data.ingest import SOURCES
from flows.config import PipelineConfig

FOLDER = "media"
"""Folder in the store's `work` that holds one folder of pictures for each archive, named by its content."""


def with_media(config: PipelineConfig, store: Store) -> PipelineConfig:
    """`config` with the folder that `image` paths start from as `media_root` of features, and so of the report.

    It is the one that the configuration names, else that of the source's pictures, unpacked if they are not yet, else
    none. It is no part of any key: a source's identity covers its pictures, and the features' key what they read.
    Raises BadDataError for an archive that is missing or broken.
    """
    root = config.features.media_root or _unpacked(config, store)
    changed = {name: getattr(config, name).model_copy(update={"media_root": root}) for name in ("features", "report")}
    return config.model_copy(update=changed)


def _unpacked(config: PipelineConfig, store: Store) -> Path | None:
    unpack = getattr(SOURCES[config.events.source], "unpack_media", None)
    if unpack is None:
        return None
    with full_disk_explained(store.root):
        folder: Path | None = unpack(config.events.chosen, store.root / "work" / FOLDER)
    return folder
