"""Vectors of all distinct pictures, or films, of a catalogue, shard by shard; what cannot be read is set aside.

Contents are told apart by sha256, so each is decoded and encoded once whatever it is called. A shard is a fixed number
of them in order of their hash, in which a blank stands in for what could not be read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np

from data.artifacts import OutputDir
from data.context import RunContext
from data.prefetch import Prefetched
from encoders.base import Identity, Vectors
from encoders.content import Source
from encoders.earlier import Earlier, file_hashes, write_hashes
from encoders.entities import Distinct
from encoders.media.listing import Media
from encoders.media.reasons import Reason
from encoders.pixels import Picture, Pixels
from encoders.shards import write_whole

SHARD = 512
"""Contents a shard: the unit of work and of retry."""

PASSING = (Reason.TIMEOUT, Reason.CRASHED)
"""Reasons that another run may not meet: a shard that met one is not kept for it."""


class PictureEncoder(Protocol):
    """Encodes stacks of frames."""

    identity: Identity
    dim: int

    def encode(self, frames: Pixels) -> Vectors:
        """Unit-norm float32 (n, dim) of n items: pictures uint8 (n, size, size, 3), films (n, F, size, size, 3)."""
        ...


class Decoded(Protocol):
    """Opens and decodes paths."""

    def __call__(self, names: Iterable[str]) -> Iterator[Picture]:
        """One picture for each name, in order."""
        ...


@dataclass(frozen=True)
class Seen:
    """`vectors` float32 (V, d) of the distinct contents that could be read, the row of each readable path, and for
    the other paths the reason."""

    vectors: Vectors
    row: Mapping[str, int]
    reasons: Mapping[str, str]


def encode_pictures(
    name: str,
    encoder: PictureEncoder,
    media: Sequence[Media],
    decoded: Decoded,
    blank: Pixels,
    out: OutputDir,
    ctx: RunContext,
    earlier: Earlier | None = None,
) -> Seen:
    """Write <name>.npy, float32 (V, d) with a unit-norm row for each distinct readable content of `media`, and
    <name>_hashes.npy. Contents that `earlier` has are neither decoded nor encoded again.

    `decoded` makes an iterator of pictures, in order, of the paths it is given; `blank`, uint8 of the shape of an item,
    is what a batch holds in place of an unreadable one. Decoding runs ahead of the encoder by two shards, which bounds
    memory: 3 x SHARD pictures. Finished shards stay in `out.work` for a run that goes on after a kill.
    """
    first: dict[str, str] = {}
    for item in media:
        if item.sha256 is not None:
            first[item.sha256] = min(item.name, first.get(item.sha256, item.name))
    lent = _lent(earlier, sorted(first))
    hashes = sorted(first.keys() - lent.keys())
    starts = range(0, len(hashes), SHARD)
    shards = [_Shard.of(encoder, name, hashes[start : start + SHARD], out.work / name) for start in starts]
    with ctx.progress.step(f"encode {name}s", len(hashes), f"{name}s") as step:
        for shard in shards:
            if shard.file.exists():
                step.advance(len(shard.hashes))
        todo = [shard for shard in shards if not shard.file.exists()]
        stacks = _stacks(todo, decoded(first[sha] for shard in todo for sha in shard.hashes), blank)
        with Prefetched(stacks, 2) as ready:
            for shard, (stack, failed) in zip(todo, ready, strict=True):
                shard.finish(encoder.encode(stack), failed)
                step.advance(len(shard.hashes))
    return _gather(name, encoder.dim, media, shards, lent, out)


@dataclass
class _Shard:
    """Contents in order, and the file their vectors go to, named by all that decides them so that none is stale."""

    hashes: list[str]
    file: Path
    kept: tuple[Vectors, dict[int, str]] | None = None

    @classmethod
    def of(cls, encoder: PictureEncoder, name: str, hashes: list[str], folder: Path) -> _Shard:
        causes = json.dumps([name, encoder.identity, hashes], sort_keys=True)
        return cls(hashes, folder / f"{hashlib.sha256(causes.encode()).hexdigest()[:32]}.npz")

    def finish(self, vectors: Vectors, failed: dict[int, str]) -> None:
        """Keep the vectors, on disk unless a failure may pass."""
        self.kept = vectors, failed
        if not any(reason in PASSING for reason in failed.values()):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            said = np.frombuffer(json.dumps(failed).encode(), np.uint8)
            write_whole(self.file, lambda stream: np.savez(stream, vectors=vectors, failed=said))
            self.kept = None

    def read(self) -> tuple[Vectors, dict[int, str]]:
        """Vectors (n, d), and by place why a content could not be read."""
        if self.kept is not None:
            return self.kept
        with np.load(self.file, allow_pickle=False) as packed:
            failed = json.loads(packed["failed"].tobytes())
            return packed["vectors"], {int(place): reason for place, reason in failed.items()}


def _stacks(
    shards: Sequence[_Shard], pictures: Iterator[Picture], blank: Pixels
) -> Iterator[tuple[Pixels, dict[int, str]]]:
    """The items of each shard, uint8 (n, *blank.shape), and by place why a picture is blank."""
    for shard in shards:
        stack = np.empty((len(shard.hashes), *blank.shape), np.uint8)
        failed = {}
        for place, picture in enumerate(islice(pictures, len(shard.hashes))):
            stack[place] = blank if picture.pixels is None else _fitted(picture.pixels, blank)
            if picture.pixels is None:
                failed[place] = picture.reason or "unknown"
        yield stack, failed


def _fitted(frames: Pixels, blank: Pixels) -> Pixels:
    """Frames uint8 (F, size, size, 3) in the shape of `blank`: one, or as many as that has, evenly spread."""
    places = 0 if blank.ndim == 3 else np.arange(len(blank)) * len(frames) // len(blank)
    fitted: Pixels = frames[places]
    return fitted


def _lent(earlier: Earlier | None, hashes: Sequence[str]) -> dict[str, Vectors]:
    """The vectors (d,) of those contents that an earlier day has."""
    if earlier is None or not hashes:
        return {}
    rows = earlier.rows(file_hashes(hashes))
    return {sha: earlier.vectors[row] for sha, row in zip(hashes, rows.tolist(), strict=True) if row >= 0}


def _gather(
    name: str,
    dim: int,
    media: Sequence[Media],
    shards: Sequence[_Shard],
    lent: Mapping[str, Vectors],
    out: OutputDir,
) -> Seen:
    reasons: dict[str, str] = {}
    for shard in shards:
        reasons |= {shard.hashes[place]: reason for place, reason in shard.read()[1].items()}
    readable = sorted({*lent, *(sha for shard in shards for sha in shard.hashes)} - reasons.keys())
    row = {sha: place for place, sha in enumerate(readable)}
    vectors: Vectors = out.open_array(f"{name}.npy", (len(readable), dim), np.float32)
    write_hashes(out, name, file_hashes(readable))
    for sha, vector in lent.items():
        vectors[row[sha]] = vector
    for shard in shards:
        kept = [place for place, sha in enumerate(shard.hashes) if sha in row]
        vectors[[row[shard.hashes[place]] for place in kept]] = shard.read()[0][kept]
    return Seen(
        vectors,
        {item.name: row[item.sha256] for item in media if item.sha256 in row},
        {
            item.name: item.reason or reasons.get(item.sha256 or "", "unknown")
            for item in media
            if item.sha256 not in row
        },
    )


def albums(seen: Seen, paths: Sequence[tuple[str, ...]]) -> Source:
    """One vector for the pictures of each entity: the mean of those that could be read, each distinct set once."""
    sets: Distinct[tuple[int, ...]] = Distinct()
    rows = []
    for own in paths:
        found = tuple(sorted({seen.row[path] for path in own if path in seen.row}))
        rows.append(sets.number(found or None))
    distinct, order = sets.ordered(lambda found: found)
    vectors = np.zeros((len(distinct), seen.vectors.shape[1]), np.float32)
    for place, found in enumerate(distinct):
        vectors[place] = seen.vectors[list(found)].mean(axis=0)
    return Source(vectors, order[np.array(rows, np.int64)])
