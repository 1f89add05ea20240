"""Files named by strangers, opened below one folder and nowhere else.

A name is walked part by part from the root's descriptor (openat with O_NOFOLLOW), so that no link, no `..` and no
renaming in between leads out. What is checked is the opened file itself, never its name again.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from data.errors import BadDataError
from encoders.media.reasons import Reason, Refused

_PART_BYTES = 255
_NAME_BYTES = 4096
_CHUNK = 1 << 20
_REMOTE = re.compile(r"https?:", re.IGNORECASE)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
"""What stands before a colon is a scheme (`file:`) or a drive (`C:`)."""

_OF_ERROR = {
    errno.ENOENT: Reason.NOT_FOUND,
    errno.ELOOP: Reason.SYMLINK,
    errno.ENOTDIR: Reason.NOT_A_FILE,
    errno.ENXIO: Reason.NOT_A_FILE,
    errno.ENAMETOOLONG: Reason.NAME_TOO_LONG,
}

_NOT_ITS_DOING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors of this machine, which would be another file's the next time: they are raised, not given as a reason."""


class Root:
    """The folder that names start from, held open; to be used in a `with` statement. Raises BadDataError without it."""

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise BadDataError(
                f"expected a folder of media files {path}, got {error.strerror}: name the folder that the catalogue's "
                "picture paths start from"
            ) from error

    def __enter__(self) -> Root:
        """The root itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Let go of the folder."""
        os.close(self._descriptor)

    def open(self, name: str) -> int:
        """A descriptor of the regular file `name`, to be closed by the caller; raises Refused."""
        *folders, last = parts_of(name)
        here = os.dup(self._descriptor)
        try:
            for folder in folders:
                inner = _open(folder, here, stat.S_ISDIR, os.O_DIRECTORY)
                os.close(here)
                here = inner
            return _open(last, here, stat.S_ISREG, 0)
        finally:
            os.close(here)

    def read(self, name: str, limit: int) -> bytes:
        """The bytes of the regular file `name`, at most `limit` and at least one; raises Refused."""
        descriptor = self.open(name)
        try:
            check_size(descriptor, limit)
            return _read(descriptor, limit)
        except OSError as error:
            raise Refused(Reason.UNREADABLE) from error
        finally:
            os.close(descriptor)


def is_remote(name: str) -> bool:
    """Whether `name` is a web address and no path."""
    return _REMOTE.match(name) is not None


def parts_of(name: str) -> list[str]:
    """The folder names and the file name of `name`; raises Refused for all that is not parts joined by `/`."""
    if is_remote(name):
        raise Refused(Reason.REMOTE_DISABLED)
    parts = name.split("/")
    odd = _SCHEME.match(name) or "\\" in name or "\0" in name or any(part in ("", ".", "..") for part in parts)
    if odd:
        raise Refused(Reason.UNSAFE_NAME)
    try:
        lengths = [len(os.fsencode(part)) for part in parts]
    except UnicodeEncodeError as error:
        raise Refused(Reason.UNSAFE_NAME) from error
    if max(lengths) > _PART_BYTES or sum(lengths) + len(lengths) > _NAME_BYTES:
        raise Refused(Reason.NAME_TOO_LONG)
    return parts


def check_size(descriptor: int, limit: int) -> int:
    """Bytes of an open file; raises Refused when there are none or more than `limit`."""
    size = os.fstat(descriptor).st_size
    if size > limit:
        raise Refused(Reason.TOO_LARGE)
    if size == 0:
        raise Refused(Reason.EMPTY)
    return size


def _open(part: str, folder: int, is_wanted: Callable[[int], bool], flags: int) -> int:
    """Open one part without following a link. The look before it spares devices being opened, and names a link."""
    try:
        _check_mode(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode, is_wanted)
        # O_NONBLOCK: a pipe put in the file's place after that look must not hold us up.
        flags |= os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        opened = os.open(part, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in _NOT_ITS_DOING:
            raise
        raise Refused(_OF_ERROR.get(error.errno or 0, Reason.UNREADABLE)) from error
    try:
        _check_mode(os.fstat(opened).st_mode, is_wanted)
    except Refused:
        os.close(opened)
        raise
    return opened


def _check_mode(mode: int, is_wanted: Callable[[int], bool]) -> None:
    if stat.S_ISLNK(mode):
        raise Refused(Reason.SYMLINK)
    if not is_wanted(mode):
        raise Refused(Reason.NOT_A_FILE)


def _read(descriptor: int, limit: int) -> bytes:
    """All bytes. A file that grows while it is read must not pass the limit either."""
    chunks, size = [], 0
    while chunk := os.read(descriptor, _CHUNK):
        size += len(chunk)
        if size > limit:
            raise Refused(Reason.TOO_LARGE)
        chunks.append(chunk)
    return b"".join(chunks)
