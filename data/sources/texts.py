"""Text files of a published set, wherever they lie: in a folder, plain or gzipped, or in a zip such as a wheel."""

from __future__ import annotations

import gzip
import hashlib
import json
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from data.errors import BadDataError

LIMIT = 1 << 28
"""Most bytes that one file may unpack to: far above any published set, far below what could fill the memory."""

_BROKEN = (OSError, EOFError, zlib.error, zipfile.BadZipFile)


def read(root: Path, name: str) -> str:
    """The text of file `name` of the set at `root`: a folder (`name` or `name`.gz) or a zip with one such member.

    Raises BadDataError when it is missing, broken, larger than `LIMIT` or not UTF-8.
    """
    try:
        return _unpacked(root, name).decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadDataError(f"{root}: {name}: expected UTF-8 text, got byte {error.start}: {error.reason}") from error


def read_json(root: Path, name: str) -> dict[str, Any]:
    """The object in a JSON file of the set; raises BadDataError as `read` does, or when it holds something else."""
    try:
        value = json.loads(read(root, name))
    except (ValueError, RecursionError) as error:
        raise BadDataError(f"{root}: {name}: expected JSON, got something else: {error}") from error
    if not isinstance(value, dict):
        raise BadDataError(f"{root}: {name}: expected a JSON object, got {type(value).__name__}")
    return value


def identity(root: Path, names: Sequence[str]) -> list[str]:
    """Name and sha256 of each unpacked file: the same however the set is packed and wherever it lies."""
    return [f"{name}:{hashlib.sha256(_unpacked(root, name)).hexdigest()}" for name in names]


def _unpacked(root: Path, name: str) -> bytes:
    try:
        with _opened(root, name) as stream:
            content = stream.read(LIMIT + 1)
    except _BROKEN as error:
        raise BadDataError(f"{root}: {name} cannot be read: {error}. Fetch the file again.") from error
    if len(content) > LIMIT:
        raise BadDataError(
            f"{root}: {name}: expected at most {LIMIT:,} bytes of text, got more: not the published file"
        )
    return content


@contextmanager
def _opened(root: Path, name: str) -> Iterator[IO[bytes] | gzip.GzipFile]:
    if root.is_file():
        with zipfile.ZipFile(root) as packed, packed.open(_member(root, packed, name)) as stream:
            yield stream
    elif (root / name).is_file():
        with open(root / name, "rb") as stream:
            yield stream
    elif (root / f"{name}.gz").is_file():
        with gzip.open(root / f"{name}.gz") as unpacked:
            yield unpacked
    else:
        raise BadDataError(f"expected the set's file {name} (or {name}.gz) in {root}, found none: correct `root`")


def _member(root: Path, packed: zipfile.ZipFile, name: str) -> str:
    found = [member for member in packed.namelist() if member.rpartition("/")[2] == name]
    if len(found) != 1:
        raise BadDataError(f"{root}: expected one file {name} in it, found {len(found)}: correct `root`")
    return found[0]
