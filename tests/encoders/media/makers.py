"""Files made for the tests: sound ones, and the parts that broken ones are put together from."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

PNG = b"\x89PNG\r\n\x1a\n"


def gradient(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """A picture whose every corner has another colour."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [x * 255 // max(width - 1, 1), y * 255 // max(height - 1, 1), (x + y) % 256]
    return Image.fromarray(np.stack(planes, -1).astype(np.uint8), "RGB").convert(mode)


def plain(colour, size=(40, 30), mode: str = "RGB") -> Image.Image:
    return Image.new(mode, size, colour)


def saved(image: Image.Image, kind: str, **options) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def header(width: int, height: int, depth: int = 8, colour: int = 2) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))


def png(width: int, height: int, *extra: bytes, rows: bytes | None = None, depth: int = 8, colour: int = 2) -> bytes:
    """A PNG of the size it says, with chunks before its data."""
    data = zlib.compress(bytes(height * (3 * width + 1))) if rows is None else rows
    return PNG + header(width, height, depth, colour) + b"".join(extra) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def zeros(count: int) -> bytes:
    """`count` zero bytes, compressed by zlib: about a thousandth of them."""
    packer = zlib.compressobj(9)
    part = bytes(1 << 20)
    return b"".join(packer.compress(part) for _ in range(count >> 20)) + packer.flush()


def resized_jpeg(data: bytes, width: int, height: int) -> bytes:
    """`data` with another size in its frame header."""
    at = max(data.find(b"\xff\xc0"), data.find(b"\xff\xc2"))
    return data[: at + 5] + struct.pack(">HH", height, width) + data[at + 9 :]


def with_segment(data: bytes, marker: int, body: bytes) -> bytes:
    """A JPEG with one more segment at its start."""
    return data[:2] + bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body + data[2:]


def exif(orientation: int) -> bytes:
    notes = Image.Exif()
    notes[0x0112] = orientation
    return notes.tobytes()


def many_scans(side: int, scans: int) -> bytes:
    """A small progressive JPEG that makes a decoder walk over all its blocks again and again."""
    data = saved(plain((128, 128, 128), (side, side)), "JPEG", progressive=True)
    last = data.rfind(b"\xff\xda")
    return data[:last] + data[last:-2] * scans + b"\xff\xd9"


def riff(kind: bytes, body: bytes) -> bytes:
    padded = kind + struct.pack("<I", len(body)) + body + bytes(len(body) % 2)
    return b"RIFF" + struct.pack("<I", len(padded) + 4) + b"WEBP" + padded


def webp_canvas(width: int, height: int) -> bytes:
    sizes = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return riff(b"VP8X", bytes(4) + sizes)


def film(colours, codec: str = "mpeg4", kind: str = "mp4", size=(64, 48), gap: int = 12, rate: int = 10) -> bytes:
    """A film of one plain frame a colour, with a key frame every `gap`."""
    return film_of([plain(colour, size) for colour in colours], codec, kind, gap, rate)


def film_of(images, codec: str = "mpeg4", kind: str = "mp4", gap: int = 12, rate: int = 10) -> bytes:
    """A film of `images`, all of one size."""
    import av

    stream_of = io.BytesIO()
    with av.open(stream_of, "w", format=kind) as container:
        stream = container.add_stream(codec, rate=rate, options={"g": str(gap)})
        stream.width, stream.height, stream.pix_fmt = *images[0].size, "yuv420p"
        for image in images:
            container.mux(stream.encode(av.VideoFrame.from_image(image)))
        container.mux(stream.encode(None))
    return stream_of.getvalue()


def sound() -> bytes:
    """An MP4 with a moment of silence and no picture."""
    import av

    stream_of = io.BytesIO()
    with av.open(stream_of, "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=44100)
        silence = av.AudioFrame(format="fltp", layout="stereo", samples=1024)
        silence.sample_rate = 44100
        for plane in silence.planes:
            plane.update(bytes(plane.buffer_size))
        container.mux(stream.encode(silence))
        container.mux(stream.encode(None))
    return stream_of.getvalue()


def put(root: Path, name: str, data: bytes) -> str:
    """Write a file below `root` and return its name."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return name
