"""Co-engagement in the build: pairs of each chunk kept as a unit, and at grid dates the edges that come of them.

The edges of a grid date g come into being when the first day from g on does: then all days before g are over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data.artifacts import ArtifactRef, OutputDir
from graph.chunks import Chunk
from graph.coengagement import Config, count
from graph.csr import to_csr
from graph.ledger import Ledger
from graph.pairs import Pairs
from graph.runs import write_csr
from graph.store import CO_ENGAGED, SHARES_USERS
from graph.units import unit

_RELATIONS = (CO_ENGAGED, SHARES_USERS)


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

        unit(self.work / "pairs" / name, make)

    def edges(self, days: Sequence[int], names: Sequence[str], sizes: Mapping[str, int], folder: Path) -> list[Path]:
        """Take in the next `days` of the counted chunks `names`; returns folders, in time order, of the edges of each
        grid date that is over by the last of them, written below `folder` for `sizes` nodes."""
        found: list[Path] = []
        for relation, ledger in self._ledgers.items():
            for day in days:
                for grid, edges in ledger.close(day):
                    found.append(folder / f"{grid:08d}")
                    rows = sizes[relation.src]
                    write_csr(found[-1], relation, to_csr(edges, rows, rows))
                for name in names:
                    counted = self.work / "pairs" / name / relation.folder / str(day)
                    if counted.is_dir():
                        ledger.add(day, Pairs.open(counted))
        return sorted(set(found))

    def write(self, out: OutputDir) -> dict[str, dict[str, int]]:
        """Write the ledgers into the artifact; returns their figures by relation."""
        return {relation.name: ledger.write(out) for relation, ledger in self._ledgers.items()}


def lends(previous: ArtifactRef, before: int) -> bool:
    """Whether the ledgers of `previous` can be taken back to what they were before day `before`: a grid date after it
    has added up days that are to be counted anew."""
    files = [f"pairs/{relation.folder}/ledger.json" for relation in _RELATIONS]
    grids = [previous.json(file)["grid"] for file in files if previous.has(file)]
    return all(grid is None or grid <= before for grid in grids)
