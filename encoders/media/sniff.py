"""The kind of a file by its first bytes alone: names and content types are what a stranger says."""

from __future__ import annotations

from enum import StrEnum

from encoders.media.reasons import Reason, Refused

_BRANDS = frozenset(
    b"isom iso2 iso3 iso4 iso5 iso6 iso7 iso8 iso9 mp41 mp42 avc1 dash MSNV mmp4 3gp4 3gp5 3gp6 3g2a".split()
) | {b"qt  ", b"M4V ", b"M4VH", b"M4VP", b"f4v "}
"""Major brands of films. Still pictures in the same container (HEIC, AVIF) have others, and are not read."""

_MATROSKA = b"\x1a\x45\xdf\xa3"
_DOCTYPES = (b"\x42\x82\x84webm", b"\x42\x82\x88matroska")
"""EBML element DocType (id 0x4282), its length and its text."""


class Kind(StrEnum):
    """A kind of file that is read."""

    JPEG = "jpeg"
    PNG = "png"
    WEBP = "webp"
    MP4 = "mp4"
    MATROSKA = "matroska"

    @property
    def film(self) -> bool:
        """Whether it is a film."""
        return self in (Kind.MP4, Kind.MATROSKA)


def sniff(data: bytes) -> Kind:
    """The kind of a file from its bytes; raises Refused for every other kind."""
    if data.startswith(b"\xff\xd8\xff"):
        return Kind.JPEG
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return Kind.PNG
    if data.startswith(b"RIFF") and data[8:15] == b"WEBPVP8":
        return Kind.WEBP
    if data[4:8] == b"ftyp" and data[8:12] in _BRANDS:
        return Kind.MP4
    if data.startswith(_MATROSKA) and any(doctype in data[:64] for doctype in _DOCTYPES):
        return Kind.MATROSKA
    raise Refused(Reason.UNSUPPORTED)
