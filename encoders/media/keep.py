"""A folder of files by content: each under the sha256 of its bytes, seen whole or not at all."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from encoders.media.reasons import Reason, Refused
from encoders.media.sniff import sniff

_HEAD = 64


def keep(chunks: Iterable[bytes], folder: Path, limit: int) -> str:
    """Write the bytes `chunks`, at most `limit`, below `folder`; their name there, ab/ab12….

    Raises Refused when they are too many, none, or of a kind that is not read; then nothing stays.
    """
    draft, path = tempfile.mkstemp(dir=folder, prefix=".draft-")
    try:
        with os.fdopen(draft, "wb") as stream:
            digest = _copy(chunks, stream.write, limit)
        name = f"{digest[:2]}/{digest}"
        (folder / name).parent.mkdir(exist_ok=True)
        os.replace(path, folder / name)
        return name
    finally:
        Path(path).unlink(missing_ok=True)


def _copy(chunks: Iterable[bytes], write: Callable[[bytes], int], limit: int) -> str:
    """Hex sha256 of what was written."""
    digest, size, head = hashlib.sha256(), 0, b""
    for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise Refused(Reason.TOO_LARGE)
        if len(head) < _HEAD:
            head += chunk[:_HEAD]
        digest.update(chunk)
        write(chunk)
    if not size:
        raise Refused(Reason.EMPTY)
    sniff(head)
    return digest.hexdigest()
