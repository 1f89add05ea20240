"""Why a picture or film of a catalogue has no pixels: one word for tables, one sentence for people."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """A reason code; `meaning` is its sentence."""

    meaning: str

    def __new__(cls, code: str, meaning: str) -> Reason:
        """A member that is its code as a string."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    UNSAFE_NAME = "unsafe_name", "The name is not plain folder and file names joined by single slashes."
    NAME_TOO_LONG = "name_too_long", "The name, or one part of it, is longer than file systems allow."
    NOT_FOUND = "not_found", "There is no such file below the media root."
    SYMLINK = "symlink", "The file or a folder on the way to it is a symbolic link, which could lead out of the root."
    NOT_A_FILE = "not_a_file", "The name belongs to a folder, pipe, socket or device, or leads through a file."
    UNREADABLE = "unreadable", "The operating system refused to read the file."
    TOO_LARGE = "too_large", "The file has more bytes than the cap."
    EMPTY = "empty", "The file has no bytes."
    CHANGED = "changed", "The file is not the one that was listed: it has changed since."
    UNSUPPORTED = "unsupported", "The first bytes are not those of a JPEG, PNG, WebP, MP4, MOV, WebM or Matroska file."
    NOT_A_PICTURE = "not_a_picture", "The file is a film where only pictures are read."
    TOO_MANY_PIXELS = "too_many_pixels", "The picture, or a frame of the film, has more pixels than the cap."
    TOO_LONG = "too_long", "The film lasts longer than the cap."
    UNKNOWN_CODEC = "unknown_codec", "The film has no video stream, or one of a codec that is not read."
    BROKEN = "broken", "The file is damaged, cut short, or not what its first bytes say."
    MEMORY = "memory", "Decoding needed more memory than the cap."
    TIMEOUT = "timeout", "Decoding or fetching took longer than the cap."
    CRASHED = "crashed", "The decoding process died."
    REMOTE_DISABLED = "remote_disabled", "The name is a web address, and fetching is not enabled."
    BAD_URL = "bad_url", "The web address is not http or https with a plain host, an allowed port and no credentials."
    BLOCKED_ADDRESS = "blocked_address", "The host is, or resolves to, an address that is not on the public internet."
    UNRESOLVED = "unresolved", "The host has no address."
    UNREACHABLE = "unreachable", "The server did not accept the connection, or broke it off."
    HTTP_STATUS = "http_status", "The server answered with something else than the file."
    TOO_MANY_REDIRECTS = "too_many_redirects", "The server sent the request on too many times."


class Refused(Exception):
    """A file that gives no pixels, and the reason; raised within `encoders.media`, an outcome outside it."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.meaning)
        self.reason = reason
