"""Content of entities that a catalogue does not have yet, in the space of a finished `features` artifact."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from data.artifacts import ArtifactRef
from data.errors import SystemStateError, UsageError
from encoders.attributes import AttributeEncoder
from encoders.base import Vectors
from encoders.content import Presence
from encoders.describe import Facts, advertiser_text, product_facts, product_text
from encoders.encode import open_text_encoder
from encoders.fuse import Fusion
from encoders.image import ImageEncoder, load_image_encoder
from encoders.media.caps import Caps
from encoders.media.pool import Decoder

Row = Mapping[str, Any]
"""A row of the contract's table of products or advertisers."""


class NewContent(NamedTuple):
    """Content float32 (n, D), the whitened parts it is fused of (n, P, D), which there are (n, P), and by path why a
    picture could not be read."""

    content: Vectors
    parts: Vectors
    present: Presence
    unread: dict[str, str]


def content_of(features: ArtifactRef, kind: str, rows: Sequence[Row], media_root: Path | None = None) -> NewContent:
    """Content of `rows` of the table of products or advertisers (`kind`), as the features stage would make it, but that
    a copy of another product keeps its own and films are not read.

    Row i depends on rows[i] alone, to the bit. Pictures are looked for below `media_root`, and not read where features
    had none. Raises UsageError for pictures without a folder, SystemStateError when an encoder of this machine is
    another one. Time: one pass of each encoder.
    """
    described = features.json("encoder.json")
    fusion = Fusion.load(features.file("fusion.safetensors"), described["weights"])
    unread: dict[str, str] = {}
    readers: dict[str, Callable[[], list[Vectors | None]]] = {
        "text": lambda: _texts(features, kind, rows),
        "image": lambda: _pictures(described, rows, media_root, unread),
        "attributes": lambda: _attributes(described, kind, rows),
    }
    dim = next(iter(fusion.whitenings.values())).components.shape[1]
    parts = np.zeros((len(rows), len(fusion.modalities), dim), np.float32)
    present = np.zeros(parts.shape[:2], np.bool_)
    for place, name in enumerate(fusion.modalities):
        found = readers[name]() if name in readers else [None] * len(rows)
        there = np.array([vector is not None for vector in found], np.bool_)
        if there.any():
            present[:, place] = there
            with threadpool_limits(1):  # as in the features stage
                whole = fusion.whitenings[name].apply(np.stack([vector for vector in found if vector is not None]))
            parts[there, place] = whole
    return NewContent(fusion.fuse(parts, present), parts, present, unread)


def _texts(features: ArtifactRef, kind: str, rows: Sequence[Row]) -> list[Vectors | None]:
    texts = [product_text(row) if kind == "product" else advertiser_text(row) for row in rows]
    known = [text for text in texts if text]
    vectors = iter(open_text_encoder(features).encode(known) if known else ())
    return [next(vectors) if text else None for text in texts]


def _attributes(described: Mapping[str, Any], kind: str, rows: Sequence[Row]) -> list[Vectors | None]:
    facts = [product_facts(row) if kind == "product" else None for row in rows]
    settings = (described["attributes_dim"], described["category_decay"], frozenset(described["labels"]))
    vectors = AttributeEncoder(described["knots"], *settings).encode([entry or Facts() for entry in facts])
    return [vector if entry else None for entry, vector in zip(facts, vectors, strict=True)]


def _pictures(
    described: Mapping[str, Any], rows: Sequence[Row], media_root: Path | None, unread: dict[str, str]
) -> list[Vectors | None]:
    """The mean of each row's pictures that can be read; None without any."""
    albums = [list(dict.fromkeys(path for path in row.get("image") or () if path)) for row in rows]
    names = sorted({path for album in albums for path in album})
    if not names:
        return [None] * len(rows)
    if media_root is None:
        raise UsageError(f"expected the folder that {names[0]!r} and other pictures lie below, got none")
    encoder = _image_encoder(described["image"]["model"])
    if encoder.identity != described["image"]:
        raise SystemStateError(
            f"the image model {encoder.identity['model']!r} here differs from the one that features were made with: "
            "install that one or run again"
        )
    vectors: dict[str, Vectors] = {}
    with Decoder(media_root, encoder.geometry, Caps(), 1) as decoder:
        for picture in decoder.pictures(names):
            if picture.pixels is None:
                unread[picture.name] = picture.reason or "unknown"
            else:
                vectors[picture.name] = encoder.encode(picture.pixels)[0]
    found = [[vectors[path] for path in album if path in vectors] for album in albums]
    return [np.stack(own).mean(axis=0) if own else None for own in found]


@lru_cache(maxsize=1)
def _image_encoder(model: str) -> ImageEncoder:
    return load_image_encoder(model)
