"""Parts `fashion` and `cold` of the benchmark: what is read, and the rows that go to the result file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from data.artifacts import ArtifactRef, Store
from data.errors import UsageError
from data.progress import Progress
from data.schema import to_micros
from data.sources import fashion as source
from encoders.image import load_image_encoder
from encoders.media.caps import Caps
from encoders.media.pool import Decoder
from encoders.text import TextEncoder
from flows import pipeline, presets
from flows.config import load_config
from tests.benchmarks.encoder_quality import cold, fashion
from tests.benchmarks.encoder_speed.bench import Bench

SHARE = 256
"""Pictures decoded before they are encoded."""


def measure_fashion(bench: Bench) -> None:
    """Neighbours and clusters of real photos and titles, by the default encoders."""
    settings = source.Settings(root=_data(bench) / "fashion-images")
    rows = [row for row in source.catalogue(settings) if row["image"]]
    root = source.unpack_media(settings, bench.scratch / "media")
    assert root is not None
    torch.set_num_threads(bench.threads)
    text = TextEncoder().encode([row["title"] for row in rows])
    image = _pictures([row["image"][0] for row in rows], root, bench.threads)
    labels = {name: _codes([row[name] for row in rows]) for name in ("sub_category", "product_type")}
    _add(bench, fashion.measure(fashion.Products(text, image, labels)))


def measure_cold(bench: Bench) -> None:
    """Products nobody has touched, by the stage's own content, on completejourney and amazon-scientific."""
    os.environ["STRATA_DATA"] = str(_data(bench).absolute())
    for name, preset, in_time in (("completejourney", "full", True), ("amazon-scientific", "amazon-scientific", False)):
        config = load_config(presets.named(preset), None, {})
        store = Store(bench.scratch / preset)
        refs: dict[str, ArtifactRef] = pipeline.direct(config, store, Progress(), until="features").refs
        t0 = to_micros(config.cuts.t0) if in_time else None
        _add(bench, cold.measure(name, refs["events"], refs["features"], t0))


def _data(bench: Bench) -> Path:
    if bench.data is None:
        raise UsageError("expected --data or STRATA_DATA, the folder of the public sets, got neither")
    return bench.data


def _pictures(names: list[str], root: Path, threads: int) -> NDArray[np.float32]:
    encoder = load_image_encoder()
    vectors = []
    with Decoder(root, encoder.geometry, Caps(), threads) as decoder:
        pictures = [picture.pixels for picture in decoder.pictures(names)]
    for start in range(0, len(pictures), SHARE):
        share = [pixels[0] for pixels in pictures[start : start + SHARE] if pixels is not None]
        vectors.append(encoder.encode(np.stack(share)))
    return np.concatenate(vectors)


def _codes(values: list[Any]) -> NDArray[np.int64]:
    return np.unique(values, return_inverse=True)[1]


def _add(bench: Bench, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        bench.say(f"{row['p50']:>12} {row['metric']:28} {row['what']}: {row['peer']} | {row['shape']}")
    bench.rows += rows
    bench.flush()
