"""A first file of each kind, made and decoded while files can still be opened.

Pillow and PyAV import parts of themselves only when they first meet the need; in a confined process that is too late.
"""

from __future__ import annotations

import io

from PIL import Image

from encoders.media import decode, film
from encoders.media.caps import Caps
from encoders.media.sniff import Kind
from encoders.pixels import Geometry

_SIDE = 16
_GEOMETRY = Geometry(size=_SIDE, resize=_SIDE)
_ORIENTATION, _MIRRORED = 0x0112, 2
_FORMATS = {Kind.MP4: "mp4", Kind.MATROSKA: "matroska"}


def warm_up(films: bool) -> None:
    """Decode one small file of each kind of picture and, if asked, of film; raises what decoding raises."""
    image = Image.new("RGBA", (_SIDE, _SIDE))
    notes = Image.Exif()
    notes[_ORIENTATION] = _MIRRORED
    for kind in (kind for kind in Kind if not kind.film):
        stream = io.BytesIO()
        (image.convert("RGB") if kind is Kind.JPEG else image).save(stream, kind, exif=notes)
        decode.picture(stream.getvalue(), kind, _GEOMETRY, Caps())
    for kind in _FORMATS if films else ():
        film.frames(_film(kind), kind, 1, _GEOMETRY, Caps())


def _film(kind: Kind) -> bytes:
    """Two black frames."""
    import av

    stream = io.BytesIO()
    with av.open(stream, "w", format=_FORMATS[kind]) as container:
        video = container.add_stream("mpeg4", rate=1)
        video.width = video.height = _SIDE
        video.pix_fmt = "yuv420p"
        for _ in range(2):
            container.mux(video.encode(av.VideoFrame(_SIDE, _SIDE, "yuv420p")))
        container.mux(video.encode(None))
    return stream.getvalue()
