"""Frames of films: evenly spaced, upright, and no more than there are."""

import struct

import numpy as np
import pytest

from encoders.media.caps import Caps
from encoders.media.containers import is_whole
from encoders.media.film import evenly, frames
from encoders.media.reasons import Reason, Refused
from encoders.media.sniff import Kind, sniff
from encoders.pixels import Geometry
from tests.encoders.media import makers as m

pytest.importorskip("av", reason="films need the extra `video`")
GEOMETRY = Geometry(16, 16)
REDS = [(8 * index, 0, 0) for index in range(30)]
FORMS = [("mpeg4", "mp4"), ("libx264", "mp4"), ("libx264", "mov"), ("libvpx", "webm"), ("libvpx-vp9", "matroska")]


def shown(data: bytes, count: int, caps: Caps = Caps(), geometry: Geometry = GEOMETRY) -> np.ndarray:  # noqa: B008
    found = [np.frombuffer(frame, np.uint8) for frame in frames(data, sniff(data), count, geometry, caps)]
    return np.stack(found).reshape(len(found), geometry.size, geometry.size, 3).astype(int)


@pytest.mark.parametrize(("codec", "kind"), FORMS)
@pytest.mark.parametrize("gap", [1, 7, 60])
def test_frames_are_the_middles_of_equal_spans(codec, kind, gap):
    reds = shown(m.film(REDS, codec, kind, gap=gap), 3)[..., 0].mean(axis=(1, 2))
    assert np.abs(reds - 8 * 29 * np.array([1, 3, 5]) / 6).max() <= 14


def test_only_what_leads_to_a_frame_is_decoded():
    """A film whose first picture is damaged still shows one from behind its second key frame."""
    data = m.film(REDS, gap=10)
    first = data.index(b"mdat") + 4
    damaged = data[:first] + bytes(60) + data[first + 60 :]
    assert np.array_equal(shown(damaged, 1), shown(data, 1))
    with pytest.raises(Refused, match="damaged"):
        shown(damaged, len(REDS))


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (4, 4), (5, 5), (9, 5)])
def test_a_short_film_gives_what_it_has(count, expected):
    assert len(shown(m.film(REDS[:5]), count)) == expected


def test_times_are_taken_evenly_not_frames():
    assert evenly([0, 1, 2, 3, 100], 2) == [3, 100]
    assert evenly(list(range(101)), 4) == [12, 37, 62, 87]
    assert evenly([5], 3) == [5]
    assert evenly([0, 1, 1000], 2) == [1, 1000]


def test_a_film_held_upright_is_turned_as_its_header_says():
    """The matrix of the track's header (ISO 14496-12, 8.3.2), here for a quarter turn clockwise."""
    image = m.plain((200, 0, 0), (64, 64))
    image.paste((0, 0, 200), (0, 0, 64, 32))  # blue above
    data = m.film_of([image] * 3)
    level = struct.pack(">9i", 1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30)
    turned = struct.pack(">9i", 0, 1 << 16, 0, -(1 << 16), 0, 0, 64 << 16, 0, 1 << 30)
    at = data.index(level, data.index(b"tkhd"))
    (before,), (after,) = shown(data, 1), shown(data[:at] + turned + data[at + len(level) :], 1)
    assert before[2, 8, 2] > 150
    assert after[8, 13, 2] > 150  # blue to the right
    assert after[8, 2, 0] > 150


@pytest.mark.parametrize(
    ("caps", "reason"),
    [
        (Caps(pixels=64 * 48 - 1), Reason.TOO_MANY_PIXELS),
        (Caps(duration=2.5), Reason.TOO_LONG),
        (Caps(pixels=64 * 48, duration=3), None),
    ],
)
def test_caps(caps, reason):
    data = m.film(REDS)
    if reason is None:
        assert len(shown(data, 2, caps)) == 2
        return
    with pytest.raises(Refused) as caught:
        shown(data, 2, caps)
    assert caught.value.reason == reason


def test_frames_larger_than_the_header_says_are_refused():
    data = m.film(REDS[:3], "libvpx", "webm")
    size = b"\xb0\x81%c\xba\x81%c"  # EBML elements PixelWidth and PixelHeight
    small = data.replace(size % (64, 48), size % (8, 8))
    assert small != data
    with pytest.raises(Refused) as caught:
        shown(small, 1, Caps(pixels=64 * 48 - 1))
    assert caught.value.reason == Reason.TOO_MANY_PIXELS


@pytest.mark.parametrize(("codec", "kind"), FORMS)
def test_a_film_cut_anywhere_is_refused(codec, kind):
    data = m.film(REDS[:4], codec, kind)
    assert len(shown(data, 1)) == 1
    for at in (*range(64, len(data), 31), len(data) - 1):
        with pytest.raises(Refused) as caught:
            shown(data[:at], 1)
        assert caught.value.reason == Reason.BROKEN


def test_a_streamed_film_counts_as_whole():
    head = b"\x1a\x45\xdf\xa3\x87\x42\x82\x84webm"
    assert is_whole(head + b"\x18\x53\x80\x67\x01" + b"\xff" * 7 + b"data", Kind.MATROSKA)
    assert not is_whole(head + b"\x18\x53\x80\x67\x85data", Kind.MATROSKA)
    assert is_whole(b"\0\0\0\x08ftyp\0\0\0\0mdat...", Kind.MP4)
    assert is_whole(b"\0\0\0\x01mdat\0\0\0\0\0\0\0\x12xx", Kind.MP4)
    assert not is_whole(b"\0\0\0\x01mdat\0\0\0\0\0\0\0\x04xx", Kind.MP4)
    assert not is_whole(b"", Kind.MATROSKA)


def test_sound_alone_is_no_film():
    with pytest.raises(Refused) as caught:
        shown(m.sound(), 1)
    assert caught.value.reason == Reason.UNKNOWN_CODEC
