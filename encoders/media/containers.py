"""Whether the container of a film has all the bytes it says it has."""

from __future__ import annotations

from encoders.media.sniff import Kind

_UNKNOWN_LENGTH = 0
_LONG_LENGTH = 1
_SEGMENT = b"\x18\x53\x80\x67"


def is_whole(data: bytes, kind: Kind) -> bool:
    """False when the film `data` is cut short. One that was streamed has no length in front, and counts as whole."""
    return _boxes_fit(data) if kind is Kind.MP4 else _segment_fits(data)


def _boxes_fit(data: bytes) -> bool:
    """Boxes follow each other up to the end (ISO 14496-12, 4.2): 4 bytes of length, 4 of type, maybe 8 of length."""
    at = 0
    while at < len(data):
        length, head = int.from_bytes(data[at : at + 4], "big"), 8
        if length == _UNKNOWN_LENGTH:
            return True
        if length == _LONG_LENGTH:
            length, head = int.from_bytes(data[at + 8 : at + 16], "big"), 16
        if length < head:
            return False
        at += length
    return at == len(data)


def _segment_fits(data: bytes) -> bool:
    """The EBML header, then one segment with all the rest (RFC 8794; RFC 9559, 4.5)."""
    head, at = _number(data, 4)
    start = at + head
    length, at = _number(data, start + 4)
    is_streamed = length == (1 << 7 * (at - start - 4)) - 1  # all ones: unknown
    return data[start : start + 4] == _SEGMENT and (is_streamed or at + length <= len(data))


def _number(data: bytes, at: int) -> tuple[int, int]:
    """The variable-length number at `at` (RFC 8794, 4) and where it ends."""
    first = data[at] if at < len(data) else 0
    width = 9 - first.bit_length()
    return int.from_bytes(data[at : at + width], "big") & ((1 << 7 * width) - 1), at + width
