"""Co-engagement in the build: pairs of each chunk kept as a unit, and at grid dates the edges that come of them.

The edges of a grid date g come into being with the first event of a day from g on: then all days before g are over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.artifacts import ArtifactRef, OutputDir
from graph.chunks import Chunk
from graph.coengagement import Config, count, first_seen
from graph.csr import to_csr
from graph.ledger import Ledger
from graph.pairs import PairsFile, PairsWriter
from graph.runs import write_csr
from graph.store import CO_ENGAGED, SHARES_USERS
from graph.units import facts, unit

_RELATIONS = (CO_ENGAGED, SHARES_USERS)


class Together:
    """The ledgers of one build. `previous` lends what it has of the days before `before`."""

    def __init__(self, config: Config, work: Path, previous: ArtifactRef | None, before: int) -> None:
        self.config, self.work = config, work
        self._ledgers = {r: Ledger(config, r, work / "ledger" / r.folder, previous, before) for r in _RELATIONS}

    def count(self, name: str, chunk: Chunk, guarded: Chunk, engaged: NDArray[np.bool_]) -> None:
        """Count the pairs of a chunk (a part, `name`, of its days) once guarded, unless an earlier run has."""

        def make(draft: Path) -> dict[str, Any]:
            writers = {relation: PairsWriter(draft / relation.folder) for relation in _RELATIONS}
            bounds: dict[str, dict[int, tuple[int, int]]] = {relation.folder: {} for relation in _RELATIONS}
            for relation, day, pairs in count(guarded, engaged, self.config):
                bounds[relation.folder][day] = writers[relation].append(pairs)
            for writer in writers.values():
                writer.close()
            return {"first": first_seen(chunk), "bounds": bounds}

        unit(self.work / "pairs" / name, make)

    def edges(self, names: Sequence[str], sizes: Mapping[str, int], folder: Path) -> list[Path]:
        """Take in the days of the counted chunks `names`, which come next.

        Returns folders, in time order, of the edges that come into being on these days, written below `folder` for
        `sizes` nodes.
        """
        counted = {path: facts(path) for path in (self.work / "pairs" / name for name in names)}
        first: dict[int, int] = {}
        for made in counted.values():
            for day, seen in made["first"].items():
                first[int(day)] = min(seen, first.get(int(day), seen))
        found = set()
        for relation, ledger in self._ledgers.items():
            parts = [
                (made["bounds"][relation.folder], PairsFile(path / relation.folder)) for path, made in counted.items()
            ]
            for day in sorted(first):
                edges = ledger.close(day, first[day])
                if edges is not None:
                    found.add(folder / f"{day:08d}")
                    rows = sizes[relation.src]
                    write_csr(folder / f"{day:08d}", relation, to_csr(edges, rows, rows))
                for bounds, pairs in parts:
                    if str(day) in bounds:
                        ledger.add(day, pairs.part(*bounds[str(day)]))
        return sorted(found)

    def write(self, out: OutputDir) -> dict[str, dict[str, int]]:
        """Write the ledgers into the artifact; returns their figures by relation."""
        return {relation.name: ledger.write(out) for relation, ledger in self._ledgers.items()}


def lends(previous: ArtifactRef, before: int) -> bool:
    """Whether the ledgers of `previous` can be taken back to what they were before day `before`: a grid date after it
    has added up days that are to be counted anew."""
    files = [f"pairs/{relation.folder}/ledger.json" for relation in _RELATIONS]
    grids = [previous.json(file)["grid"] for file in files if previous.has(file)]
    return all(grid is None or grid <= before for grid in grids)
