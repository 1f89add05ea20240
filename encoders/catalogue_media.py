"""Pictures and films of the catalogue's products, from paths to vectors, with a list of all that could not be read."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from data.artifacts import ArtifactRef, OutputDir
from data.context import RunContext
from data.errors import BadDataError
from data.sources.consumed import digest
from encoders.base import Identity
from encoders.content import Source
from encoders.earlier import Earlier
from encoders.entities import Entities
from encoders.image import ImageEncoder, load_image_encoder
from encoders.media.caps import Caps
from encoders.media.fetch import fetch
from encoders.media.listing import Media as Listed
from encoders.media.listing import listing
from encoders.media.paths import is_remote
from encoders.media.pool import Decoder
from encoders.media.reasons import Reason
from encoders.pictures import PictureEncoder, Seen, albums, encode_pictures
from encoders.pixels import Geometry, Picture
from encoders.settings import Config
from encoders.video import VideoEncoder

QUARANTINE = pa.schema(
    [pa.field(name, pa.string(), nullable=False) for name in ("entity_id", "modality", "path", "reason")]
)
"""Pictures and films that could not be read, and why (encoders.media.reasons); the product goes on without them."""


Paths = list[tuple[str, ...]]
"""The paths of each product."""


@dataclass
class Media:
    """What was read: sources by modality, each product's rows in the raw vectors, identities of the encoders, figures
    for the metrics."""

    sources: dict[str, Source] = field(default_factory=dict)
    rows: dict[str, list[list[int]]] = field(default_factory=dict)
    identities: dict[str, Identity] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)


def read_media(
    config: Config, products: Entities, out: OutputDir, ctx: RunContext, previous: ArtifactRef | None = None
) -> Media:
    """Encode the pictures and films of `products`; write image.npy, video.npy and quarantine.parquet.

    Nothing is read and no model is loaded without `image_model`, without both `media_root` and `remote`, and where the
    catalogue names none.
    """
    media = Media()
    named: dict[str, Paths] = {"image": products.images}
    if config.video_frames:
        named["video"] = [(path,) if path else () for path in products.video]
    named = {name: paths for name, paths in named.items() if any(paths)}
    rows: list[dict[str, str]] = []
    if named and config.image_model is not None and not config.reads_media:
        count = sum(any(own) for own in zip(*named.values(), strict=True))
        ctx.progress.say(f"  {count:,} products name pictures or films that are not read: set features.media_root")
    if config.reads_media and config.image_model is not None and named:
        encoder = load_image_encoder(config.image_model, config.device, config.dtype, config.compile)
        for name, paths in named.items():
            seen = _encode(name, encoder, paths, config, out, ctx, media, previous)
            media.rows[name] = [[seen.row[path] for path in own if path in seen.row] for own in paths]
            if len(seen.vectors):
                media.sources[name] = albums(seen, paths)
            rows += _unread(name, products.ids, paths, seen)
    out.write_table("quarantine.parquet", pa.Table.from_pylist(rows, schema=QUARANTINE))
    media.figures["unread"] = dict(sorted(Counter(row["reason"] for row in rows).items()))
    return media


def _encode(
    name: str,
    image: ImageEncoder,
    paths: Paths,
    config: Config,
    out: OutputDir,
    ctx: RunContext,
    media: Media,
    previous: ArtifactRef | None,
) -> Seen:
    frames = 0 if name == "image" else config.video_frames
    encoder: PictureEncoder = VideoEncoder(image, frames) if frames else image
    size = image.geometry.size
    blank = np.zeros((frames, size, size, 3) if frames else (size, size, 3), np.uint8)
    distinct = sorted({path for own in paths for path in own})
    with ExitStack() as stack:
        files = _Files(config, image.geometry, out.work / "fetched", stack)
        listed = files.listing(distinct, ctx)
        earlier = Earlier(previous, name, encoder.identity)
        seen = encode_pictures(name, encoder, listed, partial(files.pictures, frames=frames), blank, out, ctx, earlier)
    media.identities[name] = encoder.identity
    media.figures[f"{name}s"] = len(seen.vectors)
    return seen


class _Files:
    """Files below the media root, and those that were fetched from the web into folder `fetched`."""

    def __init__(self, config: Config, geometry: Geometry, fetched: Path, stack: ExitStack) -> None:
        self._config, self._fetched, self._stack = config, fetched, stack
        self._geometry = geometry
        self._names: dict[str, str] = {}  # of fetched files, by address
        self._hashes: dict[str, str] = {}  # of all files, by name below their folder
        self._decoders: dict[bool, Decoder] = {}

    def listing(self, names: list[str], ctx: RunContext) -> list[Listed]:
        """The content of each name, or why it is not read."""
        config, root = self._config, self._config.media_root
        far = [name for name in names if is_remote(name)]
        near = [name for name in names if not is_remote(name)]
        found = listing(root, near, config.caps, ctx.threads) if root is not None else []
        if root is None:
            found = [Listed(name, reason=Reason.NOT_FOUND) for name in near]
        with ctx.progress.step("fetch pictures", len(far), "files") as step:
            for item in fetch(far, self._fetched, config.caps, config.remote, config.fetchers):
                if item.name is None:
                    found.append(Listed(item.url, reason=item.reason))
                else:
                    self._names[item.url] = item.name
                step.advance()
        files = listing(self._fetched, self._names.values(), config.caps, ctx.threads) if self._names else []
        content = {item.name: item for item in files}
        self._hashes = {item.name: item.sha256 for item in (*found, *files) if item.sha256 is not None}
        return found + [replace(content[name], name=url) for url, name in self._names.items()]

    def pictures(self, names: Iterable[str], frames: int) -> Iterator[Picture]:
        """The picture of each name, in order."""
        for far, run in groupby(names, lambda name: name in self._names):
            own = (self._names.get(name, name) for name in run)
            yield from self._decoder(far).pictures(own, frames=frames, hashes=self._hashes)

    def _decoder(self, far: bool) -> Decoder:
        """The decoder of fetched files (`far`) or of those below the root, started when it is first needed."""
        if far not in self._decoders:
            root = self._fetched if far else self._config.media_root
            assert root is not None
            decoder = Decoder(root, self._geometry, self._config.caps, self._config.decoders)
            self._decoders[far] = self._stack.enter_context(decoder)
        return self._decoders[far]


def _unread(name: str, ids: list[str], paths: Paths, seen: Seen) -> Iterator[dict[str, str]]:
    for identity, own in zip(ids, paths, strict=True):
        for path in own:
            if path in seen.reasons:
                yield {"entity_id": identity, "modality": name, "path": path, "reason": seen.reasons[path]}


def contents(root: Path, caps: Caps) -> list[str]:
    """<path>:<sha256> of every regular file below `root`, sorted; of one beyond the byte cap, its size.

    Links are not followed. Raises BadDataError when there is no such folder.
    """
    if not root.is_dir():
        raise BadDataError(f"expected a folder with the catalogue's pictures at {root}: set features.media_root")
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            if path.is_file() and not path.is_symlink():
                size = path.stat().st_size
                held = digest(path) if size <= caps.bytes else f"{size} bytes"
                found.append(f"{path.relative_to(root).as_posix()}:{held}")
    return sorted(found)
