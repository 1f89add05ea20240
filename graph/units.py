"""Units of work: folders that appear whole or not at all, so that a build that was killed goes on from the last one.

What a unit holds depends on its name and the artifact's key only; any worker may make it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

_RECORD = "unit.json"


def unit(folder: Path, make: Callable[[Path], Any]) -> Any:
    """What `make(draft)` returned (JSON-able) when it filled this folder, now or in an earlier run.

    A folder that is not complete, or whose files are not of the recorded sizes, is made anew.
    """
    try:
        record = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
        if record["files"] == _sizes(folder):
            return record["facts"]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    draft = folder.with_name(f"{folder.name}.draft")
    for stale in (folder, draft):
        shutil.rmtree(stale, ignore_errors=True)
    draft.mkdir(parents=True)
    made = make(draft)
    record = {"files": _sizes(draft), "facts": made}
    (draft / _RECORD).write_text(json.dumps(record), encoding="utf-8")
    draft.rename(folder)
    return facts(folder)


def facts(folder: Path) -> Any:
    """What making a finished unit returned."""
    return json.loads((folder / _RECORD).read_text(encoding="utf-8"))["facts"]


def _sizes(folder: Path) -> dict[str, int]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != _RECORD)
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
