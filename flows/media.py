"""Where the pictures of a run's products lie: a source that brings them packed has them unpacked in the store."""

from __future__ import annotations

from pathlib import Path

from data.artifacts import Store, full_disk_explained
from data.ingest import SOURCES
from flows.config import PipelineConfig

FOLDER = "media"
"""Folder in the store's `work` that holds one folder of pictures for each archive, named by its content."""


def with_media(config: PipelineConfig, store: Store) -> PipelineConfig:
    """`config` with the folder that `image` paths start from as `media_root` of features and report.

    Nothing changes when the configuration names a folder itself or the source brings no pictures. Where they lie is no
    part of any key: what they hold is in the source's identity. Raises BadDataError for a broken archive.
    """
    unpack = getattr(SOURCES[config.events.source], "unpack_media", None)
    if unpack is None or config.features.media_root is not None:
        return _rooted(config, config.features.media_root)
    with full_disk_explained(store.root):
        return _rooted(config, unpack(config.events.chosen, store.root / "work" / FOLDER))


def _rooted(config: PipelineConfig, root: Path | None) -> PipelineConfig:
    changed = {name: getattr(config, name).model_copy(update={"media_root": root}) for name in ("features", "report")}
    return config.model_copy(update=changed)
