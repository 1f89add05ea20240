"""Co-engagement in the build: pairs of each chunk kept as a unit, and at grid dates the edges that come of them.

The edges of a grid date come into being with the first event that follows it: then all days before it are over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data.artifacts import ArtifactRef, OutputDir
from graph.chunks import Chunk
from graph.coengagement import Config, count, first_seen
from graph.csr import to_csr
from graph.ledger import Ledger
from graph.pairs import PairsFile
from graph.runs import write_csr
from graph.store import CO_ENGAGED, SHARES_USERS
from graph.units import unit

_RELATIONS = (CO_ENGAGED, SHARES_USERS)
_FIRST = "first_seen.json"


class Together:
    """The ledgers of one build. `previous` lends what it has of the days before `before`."""

    def __init__(self, config: Config, work: Path, previous: ArtifactRef | None, before: int) -> None:
        self.config, self.work = config, work
        self._ledgers = {r: Ledger(config, r, work / "ledger" / r.folder, previous, before) for r in _RELATIONS}

    def count(self, name: str, chunk: Chunk, engaged: NDArray[np.bool_]) -> None:
        """Count the pairs of a guarded chunk (a part, `name`, of its days) unless an earlier run has."""

        def make(draft: Path) -> None:
            for relation, day, pairs in count(chunk, engaged, self.config):
                pairs.save(draft / relation.folder / str(day))
            (draft / _FIRST).write_text(json.dumps(first_seen(chunk)), encoding="utf-8")

        unit(self.work / "pairs" / name, make)

    def edges(self, days: Sequence[int], names: Sequence[str], sizes: Mapping[str, int], folder: Path) -> list[Path]:
        """Take in the next `days` of the counted chunks `names`; returns folders, in time order, of the edges of each
        grid date that is over by the last of them, written below `folder` for `sizes` nodes."""
        counted = [self.work / "pairs" / name for name in names]
        first = _first([json.loads((part / _FIRST).read_text(encoding="utf-8")) for part in counted])
        found = []
        for day in (day for day in days if day in first):
            made = {relation: ledger.close(day, first[day]) for relation, ledger in self._ledgers.items()}
            if any(edges is not None for edges in made.values()):
                found.append(folder / str(day))
            for relation, edges in made.items():
                if edges is not None:
                    rows = sizes[relation.src]
                    write_csr(found[-1], relation, to_csr(edges, rows, rows))
                for pairs in (part / relation.folder / str(day) for part in counted):
                    if pairs.is_dir():
                        self._ledgers[relation].add(day, PairsFile(pairs))
        return found

    def write(self, out: OutputDir) -> dict[str, dict[str, int]]:
        """Write the ledgers into the artifact; returns their figures by relation."""
        return {relation.name: ledger.write(out) for relation, ledger in self._ledgers.items()}


def _first(parts: Sequence[Mapping[str, int]]) -> dict[int, int]:
    """When the first event of each day of some chunks became visible [us]."""
    found: dict[int, int] = {}
    for day, seen in (item for part in parts for item in part.items()):
        found[int(day)] = min(seen, found.get(int(day), seen))
    return found


def lends(previous: ArtifactRef, before: int) -> bool:
    """Whether the ledgers of `previous` can be taken back to what they were before day `before`: a grid date after it
    has added up days that are to be counted anew."""
    files = [f"pairs/{relation.folder}/ledger.json" for relation in _RELATIONS]
    grids = [previous.json(file)["grid"] for file in files if previous.has(file)]
    return all(grid is None or grid <= before for grid in grids)
