"""Finished pieces of work on disk, for a run that goes on after a kill: each there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Make file `path` of what `write(stream)` writes: into a file beside it, flushed to the disk, then renamed."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with open(draft, "wb") as stream:
        write(stream)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(draft, path)
