"""What is encoded: real titles and descriptions, or made texts of about their lengths where there are no data."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np

from data.errors import SystemStateError

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def real_texts(data: Path) -> list[str]:
    """Distinct titles and descriptions of amazon-scientific and titles of fashion-images below `data`, sorted."""
    items, products = (
        data / "amazon-scientific" / "Scientific.item.json.gz",
        data / "fashion-images" / "products.csv.gz",
    )
    for file in (items, products):
        if not file.is_file():
            raise SystemStateError(f"expected the public set's file {file}, found none: set --data to its folder")
    with gzip.open(items, "rt", encoding="utf-8") as stream:
        found = {item.get(field) for item in json.load(stream).values() for field in ("title", "description")}
    with gzip.open(products, "rt", encoding="utf-8", newline="") as stream:
        found |= {row["title"] for row in csv.DictReader(stream)}
    return sorted(text for text in found if text and text.strip())


def made_words(count: int, seed: int = 0) -> list[str]:
    """Distinct words of three to nine letters."""
    rng = np.random.default_rng(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(LETTERS[at] for at in rng.integers(0, 26, rng.integers(3, 10)))] = None
    return list(found)


def made_texts(count: int, words: list[str], seed: int = 1) -> list[str]:
    """Texts of words by Zipf's law; their numbers of words are lognormal, with the real texts' median of 29."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(np.log(27), 1.3, count), 1, 300).astype(np.int64)
    bounds = np.cumsum(1 / np.arange(1, len(words) + 1))
    drawn = np.searchsorted(bounds, rng.random(lengths.sum()) * bounds[-1])
    ends = np.cumsum(lengths)
    return [" ".join(words[at] for at in drawn[end - size : end]) for end, size in zip(ends, lengths, strict=True)]


def made_pictures(count: int, size: int, seed: int = 2) -> np.ndarray:
    """Noise with a colour of its own for each picture, uint8 (count, size, size, 3)."""
    rng = np.random.default_rng(seed)
    colours = rng.integers(0, 200, (count, 1, 1, 3), dtype=np.uint8)
    return colours + rng.integers(0, 56, (count, size, size, 3), dtype=np.uint8)
