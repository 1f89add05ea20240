"""Bytes of a picture to pixels; to be run where a crash does no harm (see `child`)."""

from __future__ import annotations

import io
import math
import struct
from contextlib import suppress

from PIL import Image

from encoders.media.caps import Caps
from encoders.media.fit import fitted
from encoders.media.reasons import Reason, Refused
from encoders.media.sniff import Kind
from encoders.pixels import Geometry

_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""EXIF orientation to what makes the picture upright (EXIF 2.3, tag 274)."""

_GAP = 2
"""A JPEG is decoded at no less than this many times the scaled size: the rest is left to the resize filter, which then
gives nearly the pixels it would give from the full size."""


def picture(data: bytes, kind: Kind, geometry: Geometry, caps: Caps) -> bytes:
    """RGB bytes (size, size, 3) of the first frame, upright and on white; raises Refused.

    Files cut short are refused, whatever they still show. Colour profiles are not applied.
    """
    try:
        return _picture(data, kind, geometry, caps)
    except (Refused, MemoryError):
        raise
    except Image.DecompressionBombError as error:
        raise Refused(Reason.TOO_MANY_PIXELS) from error
    except Exception as error:  # a parser of hostile bytes may raise anything
        raise Refused(Reason.BROKEN) from error


def _picture(data: bytes, kind: Kind, geometry: Geometry, caps: Caps) -> bytes:
    if kind is Kind.WEBP:
        _check_pixels(_webp_size(data), caps)  # Pillow 12 makes room for the canvas before it tells the size
    if kind is Kind.PNG:
        with _open(data, kind) as image:
            image.verify()  # checksums: Pillow's decoding looks at none
    with _open(data, kind) as image:
        _check_pixels(image.size, caps)
        if kind is Kind.JPEG:
            shrink = _GAP * geometry.resize / min(image.size)
            image.draft(None, (math.ceil(image.width * shrink), math.ceil(image.height * shrink)))
        image.load()
        turn = _TURNS.get(_orientation(image))
        return fitted(image if turn is None else image.transpose(turn), geometry)


def _open(data: bytes, kind: Kind) -> Image.Image:
    return Image.open(io.BytesIO(data), formats=[kind.upper()])


def _check_pixels(size: tuple[int, int], caps: Caps) -> None:
    if min(size) <= 0:
        raise Refused(Reason.BROKEN)
    if size[0] * size[1] > caps.pixels:
        raise Refused(Reason.TOO_MANY_PIXELS)


def _orientation(image: Image.Image) -> int:
    """EXIF orientation, 1 when there is none: a picture is not refused for notes about it that make no sense."""
    with suppress(Exception):
        return int(image.getexif().get(_ORIENTATION, 1))
    return 1


def _webp_size(data: bytes) -> tuple[int, int]:
    """(width, height) in a WebP header (RFC 9649: section 2.7 extended, 3.4 lossless; RFC 6386, 9.1 lossy)."""
    kind, start = data[12:16], data[20:30]
    if kind == b"VP8X":
        return 1 + int.from_bytes(start[4:7], "little"), 1 + int.from_bytes(start[7:10], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(start[1:5], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack("<HH", start[6:10])
    return width & 0x3FFF, height & 0x3FFF
