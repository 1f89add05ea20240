"""Small pictures of the products that the report names, embedded in the page.

A picture is a stranger's file: it is decoded by `encoders.media`, in processes of its own with limits, and written
anew as a small JPEG, so that none of its bytes reach the page.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from encoders.pixels import Geometry, Picture, Pixels
from flows.report_bags import Row, title_of

_QUALITY = 75

Uris = dict[str, str]
"""data: URI by product."""
Beside = Mapping[str, Mapping[str, list[str]]]
"""Products in the list beside each card, by entity type and id."""


def load(
    root: Path | None, rows: Mapping[str, Row], products: Iterable[str], size: int, most: int, threads: int
) -> Uris:
    """The first picture of each of `products`, in that order, as JPEG of `size` x `size` pixels.

    `rows` is their catalogue, whose `image` paths start from `root`; None is no pictures. Left out are products
    without a picture that can be read, and all from where the URIs together would be longer than `most` characters.
    Time grows with the pictures, memory with the URIs.
    """
    paths: dict[str, list[str]] = {}
    for product in dict.fromkeys(products):
        for path in (rows.get(product, {}).get("image") or [])[:1]:
            paths.setdefault(path, []).append(product)
    if root is None or not paths:
        return {}
    found: Uris = {}
    left = most
    for picture in _decoded(root, list(paths), size, threads):
        uri = "" if picture.pixels is None else _uri(picture.pixels)
        left -= len(uri) * len(paths[picture.name])
        if left < 0:
            break
        found.update((product, uri) for product in paths[picture.name] if uri)
    return found


def _decoded(root: Path, names: list[str], size: int, threads: int) -> Iterator[Picture]:
    from encoders.media.caps import Caps
    from encoders.media.pool import Decoder

    with Decoder(root, Geometry(size, size), Caps(), threads) as decoder:
        yield from decoder.pictures(names)


def _uri(pixels: Pixels) -> str:
    """One frame uint8 (1, size, size, 3) as a data: URI."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels[0]).save(stream, "JPEG", quality=_QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}"


class Album:
    """The page's list of (URI, title) pairs, and the place of a product in it."""

    def __init__(self, uris: Uris, rows: Mapping[str, Row]) -> None:
        self.pictures = [[uri, title_of(product, rows)] for product, uri in uris.items()]
        self._place = {product: place for place, product in enumerate(uris)}

    def places(self, products: Iterable[str]) -> list[int]:
        """Where each of `products` is in the list, -1 for those without a picture."""
        return [self._place.get(product, -1) for product in products]


def illustrate(drawn: dict[str, Any], album: Album, typical: list[list[str]], beside: Beside) -> None:
    """Put the album into `drawn`: `typical` are the products of each interest.

    Without a picture nothing is added, so that such a page is the same as ever.
    """
    if not album.pictures:
        return
    drawn["pictures"] = album.pictures
    for interest, products in zip(drawn["interests"], typical, strict=True):
        interest["pictures"] = album.places(products)
    for card in drawn["bags"]["product"]:
        card["picture"] = album.places([card["id"]])[0]
    for kind, lists in beside.items():
        for card in drawn["bags"][kind]:
            card["events"]["pictures"] = album.places(lists[card["id"]])
