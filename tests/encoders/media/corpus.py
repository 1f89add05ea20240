"""Hostile and odd files, each with what must come of it: a reason, or None where it must decode."""

import io
import os
import socket
import struct
import zipfile
import zlib
from pathlib import Path

from encoders.media.reasons import Reason as R
from tests.encoders.media import makers as m

Corpus = dict[str, tuple[R | None, ...]]
"""Name below the root -> outcomes that are right."""

BYTES = 5_000_000
PIXELS = 30_000_000
MEMORY = 512 << 20
SECONDS = 4.0
GOOD = 6
CANARY = (255, 0, 255)


def build(root: Path, outside: Path) -> Corpus:
    """Write everything below `root`, and the canary that no name may reach into `outside`."""
    root.mkdir()
    outside.mkdir()
    (outside / "canary.png").write_bytes(m.saved(m.plain(CANARY), "PNG"))
    files = {**_bombs(), **_cut_short(), **_wrong_numbers(), **_other_kinds(), **_sound(), **_films()}
    corpus: Corpus = {}
    for name, (data, *outcomes) in files.items():
        corpus[m.put(root, name, data)] = tuple(outcomes)
    return corpus | _odd_files(root, outside) | _odd_names(outside)


def good_names(root: Path) -> list[str]:
    """A few sound pictures among the others."""
    image = m.saved(m.gradient(50, 40), "JPEG")
    return [m.put(root, f"good/{index}.jpg", image) for index in range(GOOD)]


def _bombs() -> dict:
    text = m.zeros(200 << 20)
    small = m.saved(m.gradient(40, 30), "JPEG")
    note = b"Comment\0\0"
    return {
        "bomb_1bit.png": (m.png(60000, 60000, rows=m.zeros(8 << 20), depth=1, colour=0), R.TOO_MANY_PIXELS),
        "bomb_just_over.png": (m.png(6000, 5001), R.TOO_MANY_PIXELS),
        "bomb_row.png": (m.png(30_000_001, 1, rows=b""), R.TOO_MANY_PIXELS),
        "bomb.jpg": (m.resized_jpeg(small, 65500, 65500), R.TOO_MANY_PIXELS),
        "bomb_progressive.jpg": (m.resized_jpeg(m.many_scans(64, 1), 65500, 65500), R.TOO_MANY_PIXELS),
        "bomb_canvas.webp": (m.webp_canvas(1 << 24, 1 << 24), R.TOO_MANY_PIXELS),
        "bomb_lossless.webp": (m.riff(b"VP8L", b"\x2f\xff\xff\xff\x0f" + bytes(9)), R.TOO_MANY_PIXELS),
        "bomb_lossy.webp": (m.riff(b"VP8 ", b"\x50\0\0\x9d\x01\x2a\xff\x3f\xff\x3f"), R.TOO_MANY_PIXELS),
        "bomb_idat.png": (m.png(40, 30, rows=text), None, R.BROKEN),
        "bomb_iccp.png": (m.png(40, 30, m.chunk(b"iCCP", b"p\0\0" + text)), R.BROKEN, None),
        "bomb_ztxt.png": (m.png(40, 30, m.chunk(b"zTXt", note + text)), R.BROKEN),
        "bomb_itxt.png": (m.png(40, 30, m.chunk(b"iTXt", b"c\0\1\0\0\0" + text)), R.BROKEN),
        "bomb_many_ztxt.png": (m.png(40, 30, *_many_texts(m.chunk(b"zTXt", note + m.zeros(1 << 20)))), R.BROKEN),
        "bomb_late_ztxt.png": (_after_data(m.png(40, 30), m.chunk(b"zTXt", note + text)), R.BROKEN),
        "bomb_scans.jpg": (m.many_scans(5000, 600), R.TIMEOUT),
        "bomb_memory.webp": (
            m.saved(m.plain((1, 2, 3, 4), (5400, 5400), "RGBA"), "WEBP", lossless=True, method=0),
            R.MEMORY,
            R.BROKEN,
        ),
    }


def _many_texts(text: bytes) -> list[bytes]:
    return [text] * 80


def _after_data(data: bytes, late: bytes) -> bytes:
    return data[:-12] + late + data[-12:]


def _cut_short() -> dict:
    jpeg, late = m.saved(m.gradient(60, 40), "JPEG"), m.saved(m.gradient(60, 40), "JPEG", progressive=True)
    png, webp = m.saved(m.gradient(60, 40), "PNG"), m.saved(m.gradient(60, 40), "WEBP")
    scan = jpeg.find(b"\xff\xda")
    idat = png.find(b"IDAT")
    cuts = {
        "jpg": {at: jpeg[:at] for at in (3, 20, scan, scan + 14, len(jpeg) // 2, len(jpeg) - 2, len(jpeg) - 1)},
        "progressive.jpg": {at: late[:at] for at in (len(late) // 2, late.rfind(b"\xff\xda"), len(late) - 2)},
        "png": {at: png[:at] for at in (8, 12, 20, 33, idat, idat + 4, idat + 30, len(png) - 12, len(png) - 5)},
        "webp": {at: webp[:at] for at in (16, 20, 30, len(webp) // 2, len(webp) - 1)},
    }
    return {f"cut_{at}.{kind}": (data, R.BROKEN) for kind, parts in cuts.items() for at, data in parts.items()}


def _wrong_numbers() -> dict:
    jpeg, png = m.saved(m.gradient(60, 40), "JPEG"), bytearray(m.saved(m.gradient(60, 40), "PNG"))
    png[png.find(b"IDAT") + 20] ^= 0x10
    many = struct.pack("<H", 40000) + struct.pack("<HHII", 0x0112, 3, 0xFFFFFFFF, 0xFFFFFFF0) * 3000
    return {
        "zero_width.png": (m.png(0, 30), R.BROKEN),
        "zero_both.png": (m.png(0, 0), R.BROKEN),
        "huge_width.png": (m.png(1 << 31, 1, rows=b""), R.BROKEN, R.TOO_MANY_PIXELS),
        "all_ones.png": (m.png(0xFFFFFFFF, 0xFFFFFFFF, rows=b""), R.BROKEN, R.TOO_MANY_PIXELS),
        "zero_size.jpg": (m.resized_jpeg(jpeg, 0, 0), R.BROKEN),
        "taller.jpg": (m.resized_jpeg(jpeg, 60, 4000), R.BROKEN, None),
        "zero_size.webp": (m.riff(b"VP8 ", b"\x50\0\0\x9d\x01\x2a\0\0\0\0"), R.BROKEN),
        "flipped_bit.png": (bytes(png), R.BROKEN),
        "wrong_checksum.png": (m.png(40, 30)[:-1] + b"\0", None, R.BROKEN),
        "huge_chunk.png": (m.PNG + m.header(40, 30) + b"\xff\xff\xff\xffIDAT" + bytes(50), R.BROKEN),
        "negative_chunk.png": (m.PNG + m.header(40, 30) + b"\x80\0\0\0IDAT" + bytes(50), R.BROKEN),
        "no_data.png": (m.PNG + m.header(40, 30) + m.chunk(b"IEND", b""), R.BROKEN),
        "odd_depth.png": (m.png(40, 30, depth=7), R.BROKEN),
        "few_rows.png": (m.png(40, 30, rows=zlib.compress(bytes(200))), R.BROKEN),
        "exif_noise.jpg": (m.with_segment(jpeg, 0xE1, b"Exif\0\0II*\0\x08\0\0\0" + b"\xff" * 400), None),
        "exif_loop.jpg": (m.with_segment(jpeg, 0xE1, b"Exif\0\0II*\0\x08\0\0\0" + many), None),
        "exif_99.jpg": (m.saved(m.gradient(60, 40), "JPEG", exif=m.exif(99)), None),
        "icc_noise.jpg": (m.with_segment(jpeg, 0xE2, b"ICC_PROFILE\0\1\1" + b"\xff" * 400), None),
        "mpf_noise.jpg": (m.with_segment(jpeg, 0xE2, b"MPF\0II*\0\x08\0\0\0" + b"\xff" * 60), None),
        "adobe_short.jpg": (m.with_segment(jpeg, 0xEE, b"Adobe"), None, R.BROKEN),
        "segment_short.jpg": (jpeg[:2] + b"\xff\xe5\0\0" + jpeg[2:], None, R.BROKEN),
        "exif_noise.png": (m.png(40, 30, m.chunk(b"eXIf", b"II*\0\x08\0\0\0" + b"\xff" * 400)), None),
        "frames_2e9.png": (m.png(40, 30, m.chunk(b"acTL", struct.pack(">II", 0x7FFFFFFF, 0))), None, R.BROKEN),
    }


def _other_kinds() -> dict:
    picture = m.gradient(40, 30)
    svg = b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>'
    named = {kind: m.saved(picture, kind) for kind in ("GIF", "TIFF", "BMP", "PPM", "ICO", "TGA", "PCX", "JPEG2000")}
    files = {f"{kind.lower()}.jpg": data for kind, data in named.items()}
    files |= {
        "picture.svg": svg,
        "picture.eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) (r) file",
        "binary.eps": b"\xc5\xd0\xd3\xc6" + bytes(40),
        "big_endian.tiff": b"MM\0*\0\0\0\x08" + bytes(100),
        "picture.psd": b"8BPS\0\1" + bytes(60),
        "picture.heic": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(60),
        "picture.avif": b"\0\0\0\x18ftypavif\0\0\0\0mif1avif" + bytes(60),
        "sound.webp": b"RIFF\x24\0\0\0WAVEfmt " + bytes(60),
        "film.avi": b"RIFF\x24\0\0\0AVI LIST" + bytes(60),
        "page.png": b"<!DOCTYPE html><script>fetch('/')</script>",
        "paper.jpg": b"%PDF-1.7\n1 0 obj\n",
        "program.jpg": b"\x7fELF\x02\x01\x01" + bytes(60),
        "program.png": b"MZ\x90\0" + bytes(60),
        "archive.jpg": _zip(b"hello"),
        "playlist.mp4": b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n",
        "list.mp4": b"ffconcat version 1.0\nfile '/etc/passwd'\n",
        "link.jpg": b"http://127.0.0.1/canary.png",
        "one_byte.jpg": b"\xff",
        "two_bytes.jpg": b"\xff\xd8",
        "zeros.jpg": bytes(1 << 20),
        "other_document.mkv": b"\x1a\x45\xdf\xa3\x8b\x42\x82\x88htmldocs" + bytes(60),
        "zip_then.jpg": _zip(b"hello") + m.saved(picture, "JPEG"),
        "page_then.png": b"<html>" + m.saved(picture, "PNG"),
        "gif_script.gif": b"GIF89a/*" + bytes(20) + b"*/=1;alert(1)",
    }
    return {f"other/{name}": (data, R.UNSUPPORTED) for name, data in files.items()} | {
        "other/empty.jpg": (b"", R.EMPTY)
    }


def _zip(body: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("a.txt", body)
    return stream.getvalue()


def _sound() -> dict:
    picture, jpeg = m.gradient(60, 40), m.saved(m.gradient(60, 40), "JPEG")
    png = m.saved(picture, "PNG")
    more = [m.plain((0, 0, 200)), m.plain((0, 200, 0))]
    files = {
        "png_named.jpg": png,
        "jpeg_named.png": jpeg,
        "no_ending": jpeg,
        "jpeg_and.zip.jpg": jpeg + _zip(b"hello"),
        "png_and.html": png + b"<html><script>alert(1)</script>",
        "png_and.php.png": m.png(40, 30, m.chunk(b"tEXt", b"Comment\0<?php system('id');?>")),
        "jpeg_comment.jpg": m.with_segment(jpeg, 0xFE, b"/*<script>*/"),
        "webp_and.zip.webp": m.saved(picture, "WEBP") + _zip(b"hello"),
        "frames.png": m.saved(m.plain((200, 0, 0)), "PNG", save_all=True, append_images=more),
        "frames.webp": m.saved(m.plain((200, 0, 0)), "WEBP", save_all=True, append_images=more),
        "frames.mpo.jpg": m.saved(m.plain((200, 0, 0)), "MPO", save_all=True, append_images=more),
        "one_pixel.png": m.saved(m.plain((9, 9, 9), (1, 1)), "PNG"),
        "one_row.png": m.png(9_000_000, 1),
        "one_column.png": m.png(1, 2_000_000),
        "long.jpg": m.saved(m.plain((9, 9, 9), (65000, 2)), "JPEG"),
        "grey.jpg": m.saved(picture.convert("L"), "JPEG"),
        "cmyk.jpg": m.saved(picture.convert("CMYK"), "JPEG"),
        "bits.png": m.saved(picture.convert("1"), "PNG"),
        "palette.png": m.saved(picture.convert("P"), "PNG", transparency=0),
        "grey_alpha.png": m.saved(picture.convert("LA"), "PNG"),
        "deep_grey.png": m.png(40, 30, rows=zlib.compress(bytes(30 * 81)), depth=16, colour=0),
        "deep_alpha.png": m.png(40, 30, rows=zlib.compress(bytes(30 * 321)), depth=16, colour=6),
        "alpha.webp": m.saved(m.plain((9, 9, 9, 100), mode="RGBA"), "WEBP"),
    }
    return {f"sound/{name}": (data, None) for name, data in files.items()}


def _films() -> dict:
    film, web = m.film([(200, 0, 0)] * 8), m.film([(0, 200, 0)] * 8, "libvpx", "webm")
    cut = {"mp4": (film, (40, len(film) // 2, len(film) - 3)), "webm": (web, (60, 200, len(web) // 2, len(web) - 1))}
    files = {f"films/cut_{at}.{kind}": (data[:at], R.BROKEN) for kind, (data, ats) in cut.items() for at in ats}
    wide = film.replace(struct.pack(">HH", 64, 48), struct.pack(">HH", 65535, 65535))
    return files | {
        "films/sound.mp4": (film, None),
        "films/sound.webm": (web, None),
        "films/named.jpg": (web, None),
        "films/codec.mov": (m.film([(9, 9, 9)] * 3, "rawvideo", "mov"), R.UNKNOWN_CODEC),
        "films/long.mp4": (m.film([(9, 9, 9)] * 40, rate=1), R.TOO_LONG),
        "films/noise.mp4": (film[:40] + bytes(len(film) - 40), R.BROKEN),
        "films/noise.webm": (web[:48] + b"\xff" * 3000, R.BROKEN),
        "films/wide.mp4": (wide, R.TOO_MANY_PIXELS, R.BROKEN, None),
        "films/only_type.mp4": (b"\0\0\0\x18ftypisom\0\0\0\0isommp42", R.BROKEN),
        "films/loop.mp4": (b"\0\0\0\x18ftypisom\0\0\0\0isommp42" + b"\0\0\0\0moov" * 2000, R.BROKEN),
        "films/nested.mp4": (_nested(), R.BROKEN),
    }


def _nested() -> bytes:
    """A box in a box in a box, 20,000 deep."""
    depth = 20_000
    inner = b"".join(struct.pack(">I", 8 * (depth - level)) + b"moov" for level in range(depth))
    return b"\0\0\0\x18ftypisom\0\0\0\0isommp42" + inner


def _odd_files(root: Path, outside: Path) -> Corpus:
    jpeg = m.saved(m.gradient(40, 30), "JPEG")
    m.put(root, "inner/é.jpg", jpeg)  # one character; its twin is two
    (root / "folder.jpg").mkdir()
    os.mkfifo(root / "pipe.jpg")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(root)  # the path of a socket may have about 100 bytes only
        try:
            listener.bind("socket.jpg")
        finally:
            os.chdir(here)
    os.truncate(root / m.put(root, "sparse.jpg", jpeg), BYTES + 1)
    links = {"link_out.jpg": outside / "canary.png", "link_in.jpg": root / "inner/é.jpg", "link_away.jpg": "gone"}
    links |= {"link_folder": outside, "link_inner": root / "inner", "link_loop.jpg": "link_loop.jpg"}
    for name, target in links.items():
        (root / name).symlink_to(target)
    linked = ("link_out.jpg", "link_in.jpg", "link_away.jpg", "link_loop.jpg", "link_folder/canary.png")
    return dict.fromkeys((*linked, "link_inner/é.jpg", "link_folder"), (R.SYMLINK,)) | {
        "inner/é.jpg": (None,),
        "inner/e\u0301.jpg": (R.NOT_FOUND,),
        "inner/É.jpg": (R.NOT_FOUND,),
        "inner": (R.NOT_A_FILE,),
        "folder.jpg": (R.NOT_A_FILE,),
        "pipe.jpg": (R.NOT_A_FILE,),
        "socket.jpg": (R.NOT_A_FILE,),
        "sparse.jpg": (R.TOO_LARGE,),
        "sparse.jpg/x.jpg": (R.NOT_A_FILE,),
    }


def _odd_names(outside: Path) -> Corpus:
    up = f"../{outside.name}/canary.png"
    unsafe = [
        *(up, f"inner/../{up}", f"./{up}", str(outside / "canary.png"), f"//{outside}/canary.png", f"inner//{up}"),
        *(up.replace("/", "\\"), "..\\..\\x.jpg", "\\\\host\\share\\x.jpg", "C:\\x.jpg", "C:x.jpg", "c:/x.jpg"),
        *(f"file://{outside}/canary.png", f"file:{outside}/canary.png", "ftp://host/x.jpg", "data:image/png;base64,AA"),
        *("", ".", "..", "/", "./inner/é.jpg", "inner/", "inner//é.jpg", "good/0.jpg\0.png", "\0", "\ud800.jpg"),
        *("/dev/zero", "/proc/self/environ", "/etc/passwd"),
    ]
    missing = ["gone.jpg", "%2e%2e/canary.png", "．．/canary.png", "inner/‥/x.jpg", "…", " ", "~/x.jpg", "$HOME/x.jpg"]
    long = ["x" * 300 + ".jpg", "é" * 128, "a/" * 3000 + "x.jpg"]
    remote = ["http://127.0.0.1/x.jpg", "HTTPS://host/x.jpg", "https:host"]
    reasons = {R.UNSAFE_NAME: unsafe, R.NOT_FOUND: missing, R.NAME_TOO_LONG: long, R.REMOTE_DISABLED: remote}
    return {name: (reason,) for reason, names in reasons.items() for name in names}
