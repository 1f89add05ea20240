"""Hash of the code behind a stage: its folder and every project folder that one imports, transitively.

A changed line anywhere in that closure gives the stage a new key, so no artifact outlives the code that made it.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("data", "graph", "encoders", "hierarchy", "ranking", "kernels", "flows")
_SUFFIXES = {".py", ".sql", ".html", ".js", ".css", ".jinja"}
_IMPORT = re.compile(rf"^\s*(?:from|import)\s+({'|'.join(FOLDERS)})\b", re.MULTILINE)


def _files(folder: str) -> list[Path]:
    return sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in _SUFFIXES and "__pycache__" not in p.parts)


def imported_folders(folder: str) -> frozenset[str]:
    """`folder` and every project folder reached from it by imports."""
    reached: set[str] = set()
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        if here in reached:
            continue
        reached.add(here)
        for path in _files(here):
            if path.suffix == ".py":
                waiting += _IMPORT.findall(path.read_text(encoding="utf-8"))
    return frozenset(reached)


@cache
def code_hash(folder: str) -> str:
    """Hex sha256 over names and bytes of the source files in `imported_folders(folder)`; read once a process."""
    digest = hashlib.sha256()
    for name in sorted(imported_folders(folder)):
        for path in _files(name):
            digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
