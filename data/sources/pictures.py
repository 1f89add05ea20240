"""A zip of product pictures named <number>.jpg: what is in it, and how it safely becomes a folder of files.

The archive is data from outside. No name in it is trusted with a place on disk (only digits and .jpg pass, so nothing
can leave the folder), no size in its index is trusted with memory or disk (each file is read up to a cap, and all up to
another), and what the files hold is not looked at here: decoding has its own guards.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data.errors import BadDataError

FILE_BYTES = 4 << 20
"""Most bytes of one picture."""
TOTAL_BYTES = 1 << 30
"""Most bytes of all pictures together."""
FILES = 200_000
"""Most pictures."""

_NAME = re.compile(r"[0-9]{1,18}\.jpg")
_BROKEN = (OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError)


def names(archive: Path) -> list[str]:
    """Names of the pictures in `archive`, sorted.

    Raises BadDataError when it is no zip, holds anything not named <number>.jpg, a name twice, or too many.
    """
    with _opened(archive) as packed:
        return _checked(archive, packed)


def unpack(archive: Path, folder: Path) -> Path:
    """Write the pictures of `archive` into `folder`, which appears complete or not at all; returns it.

    Nothing is done when the folder is there. Memory: one picture. Raises BadDataError as `names` does, and for a
    picture that is broken, encrypted or too large.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        with _opened(archive) as packed:
            _extract(archive, packed, draft)
        draft.chmod(0o755)
        _appear(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


@contextmanager
def _opened(archive: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(archive) as packed:
            yield packed
    except _BROKEN as error:
        raise BadDataError(f"{archive} cannot be read as a zip of pictures: {error}. Fetch the file again.") from error


def _checked(archive: Path, packed: zipfile.ZipFile) -> list[str]:
    found = packed.namelist()
    if len(found) > FILES:
        raise BadDataError(f"{archive}: expected at most {FILES:,} pictures, got {len(found):,}")
    odd = next((name for name in found if not _NAME.fullmatch(name)), None)
    if odd is not None:
        raise BadDataError(f"{archive}: expected pictures named <number>.jpg only, got {odd[:80]!r}")
    if len(set(found)) < len(found):
        raise BadDataError(f"{archive}: expected every picture once, got a name twice")
    return sorted(found)


def _extract(archive: Path, packed: zipfile.ZipFile, draft: Path) -> None:
    left = TOTAL_BYTES
    for name in _checked(archive, packed):
        with packed.open(name) as stream:
            content = stream.read(min(FILE_BYTES, left) + 1)
        if len(content) > min(FILE_BYTES, left):
            limit = f"{FILE_BYTES:,} bytes a picture and {TOTAL_BYTES:,} in all"
            raise BadDataError(f"{archive}: {name}: expected at most {limit}, got more")
        left -= len(content)
        (draft / name).write_bytes(content)


def _appear(draft: Path, folder: Path) -> None:
    try:
        os.rename(draft, folder)
    except OSError:
        if not folder.is_dir():  # else another run was faster, and its folder holds the same
            raise
