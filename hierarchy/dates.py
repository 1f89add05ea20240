"""Dates that an artifact of an earlier day lends to this one: files of equal cause, taken without being made again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data.artifacts import ArtifactRef, OutputDir

_RECORD = "dates.json"


class Dates:
    """The files of an artifact, one a date, as they are found or made. `previous` is an artifact of an earlier day."""

    def __init__(self, out: OutputDir, previous: ArtifactRef | None) -> None:
        self.out, self.previous = out, previous
        self.earlier: dict[str, Any] = {}
        if previous is not None and previous.has(_RECORD):
            self.earlier = previous.json(_RECORD)
        self.records: dict[str, dict[str, Any]] = {}
        self.lent = 0

    def add(self, name: str, cause: str, make: Callable[[Path], tuple[int, Any]]) -> None:
        """Take file `name` from the earlier artifact when it has one of the same `cause`, else make it.

        `make` writes the file at a path and returns its rows and JSON-able facts. What a killed run finished is in the
        work folder and is not made again.
        """
        known = self.earlier.get(name)
        if self.previous is not None and known is not None and known["cause"] == cause:
            self.out.adopt(self.previous, name)
            self.records[name] = known
            self.lent += 1
            return
        target = self.out.work / name
        told = target.with_name(f"{target.name}.json")
        if not told.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            rows, facts = make(target)
            draft = told.with_suffix(".draft")
            draft.write_text(json.dumps({"cause": cause, "rows": rows, "facts": facts}), encoding="utf-8")
            draft.replace(told)
        self.records[name] = json.loads(told.read_text(encoding="utf-8"))
        self.out.take(target, name, self.records[name]["rows"])

    def write(self) -> list[Any]:
        """Write the record of all dates; returns their facts in order of date."""
        self.out.write_json(_RECORD, self.records)
        return [self.records[name]["facts"] for name in sorted(self.records)]

    @property
    def rows(self) -> int:
        """Rows of all dates."""
        return sum(int(record["rows"]) for record in self.records.values())


def cause_of(*parts: Any) -> str:
    """Hex sha256 of JSON-able parts."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def content_of(ref: ArtifactRef, *without: str) -> str:
    """Hex sha256 of all files of an artifact by their recorded hashes, but for those named."""
    return cause_of({name: listed["sha256"] for name, listed in ref.manifest["files"].items() if name not in without})
