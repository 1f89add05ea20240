"""The memory of co-engagement: pair counts up to the last grid date, those of each day since, and the edges they give.

    pairs/<relation>/base/{key,support,weight,users,mass}.npy   both directions of every pair, up to the last grid date
    pairs/<relation>/<date>/{key,support,weight,users}.npy      first < second, for each day since
    pairs/<relation>/ledger.json                                the grid date and the days, as day numbers

A grid date g stands for all days before it. Its edges become visible with the first event of day g or later: from then
on all days before g are over, whatever a reader's clock says, and a log cut at any time gives the edges that the whole
log shows at that time. What a day added is written once and stays until a grid date takes it into the base, which stays
until the next one. So day by day leaves the very files that all days at once leave.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.artifacts import ArtifactRef, OutputDir
from data.parts import EVENT_PARTS, part_name
from graph.arrays import ArrayFile, load, save
from graph.coengagement import Config
from graph.csr import EdgeList
from graph.groups import starts
from graph.pairs import COLUMNS, Pairs, PairsFile, PairsWriter, added, turned
from graph.pmi import best, score, supported
from graph.store import Relation

Scored = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
"""First node, second node and score of pairs, each (n,)."""


class Ledger:
    """Counts of one relation: for each day in order `close`, then `add`; in the end `write` them into the artifact.

    `work` is a folder for files in the making. `previous` is an earlier graph artifact made with the same config, of
    which the days before `before` still hold; without one the ledger starts empty.
    """

    def __init__(
        self, config: Config, relation: Relation, work: Path, previous: ArtifactRef | None = None, before: int = 0
    ) -> None:
        self.config, self.folder, self.work, self.previous = config, f"pairs/{relation.folder}", work, previous
        self.base: Pairs | PairsFile = Pairs.empty()
        self.mass = np.zeros(0, np.int64)
        self.grid: int | None = None
        self._days: dict[int, list[Pairs | PairsFile]] = {}
        self._kept: set[str] = set()  # folders taken over as they are
        if previous is not None and previous.has(f"{self.folder}/ledger.json"):
            self._resume(previous, before)

    def close(self, day: int, seen: int) -> EdgeList | None:
        """Take in the days before the last grid date up to `day`, the first event of which is visible from `seen` [us].

        Returns the edges made then, visible from `seen` on and weighted by score; None where there is nothing to take
        in. Only nodes whose counts grew since the last grid date get edges: older ones still say what is known of the
        others. Memory: about 120 bytes for each of `batch_pairs` and 24 bytes a node.
        """
        grid = day // self.config.grid_days * self.config.grid_days
        over = sorted(known for known in self._days if known < grid)
        if not over:
            return None
        found = self._take_in(grid, [part for known in over for part in self._days.pop(known)])
        src, dst, weight = (np.concatenate(column) for column in zip(_NOTHING, *found, strict=True))
        visible = np.full(len(src), seen)
        return EdgeList(src, dst, visible - 1, visible, weight)

    def add(self, day: int, pairs: Pairs | PairsFile) -> None:
        """Add a part of the counts of `day`, first < second."""
        self._days.setdefault(day, []).append(pairs)
        self._kept.discard(self._day_folder(day))

    def write(self, out: OutputDir) -> dict[str, int]:
        """Write the state into the artifact, taking over unchanged files.

        Returns how many pairs are remembered, in both directions, and wait for the next grid date, in one.
        """
        if self.grid is not None:
            self._place(out, f"{self.folder}/base", (*COLUMNS, "mass"), self.work / str(self.grid))
        for day in sorted(self._days):
            folder = self._day_folder(day)
            if folder not in self._kept:
                _whole(self._days[day]).save(self.work / folder)
            self._place(out, folder, tuple(COLUMNS), self.work / folder)
        out.write_json(f"{self.folder}/ledger.json", {"grid": self.grid, "days": sorted(self._days)})
        waiting = sum(out.rows[f"{self._day_folder(day)}/key.npy"] for day in self._days)
        return {"remembered": len(self.base), "waiting": waiting}

    def _resume(self, previous: ArtifactRef, before: int) -> None:
        state = previous.json(f"{self.folder}/ledger.json")
        self.grid = state["grid"]
        if self.grid is not None:
            self.base = self._open(previous, f"{self.folder}/base")
            self.mass = load(previous.file(f"{self.folder}/base/mass.npy"))
        for day in (day for day in state["days"] if day < before):
            self._days[day] = [self._open(previous, self._day_folder(day))]

    def _open(self, previous: ArtifactRef, folder: str) -> PairsFile:
        for name in COLUMNS:
            previous.file(f"{folder}/{name}.npy")
        self._kept.add(folder)
        return PairsFile(previous.path / folder)

    def _take_in(self, grid: int, parts: Sequence[Pairs | PairsFile]) -> list[Scored]:
        if sum(map(len, parts)) <= self.config.batch_pairs:
            parts = [_whole(parts)]
        fresh = _by_node(parts, _nodes(parts), ("first", "second"), weighted=True)
        remains = self._remains(grid)
        mass = np.zeros(max(len(fresh), len(self.mass)), np.int64)
        mass[: len(self.mass)] = _scaled(self.mass, remains)
        mass[: len(fresh)] += fresh
        active = np.zeros(len(mass), bool)
        active[: len(fresh)] = fresh > 0
        target = self.work / str(grid)
        kept, edges = PairsWriter(target), []
        for low, high in self._ranges(parts, len(mass)):
            pairs = added([_aged(self.base.between(low, high), remains), *_both_ways(parts, low, high)])
            edges.append(self._best_of(pairs, mass, active))
            kept.append(pairs.take(self._remembered(pairs, mass)))
        kept.close()
        save(target / "mass.npy", mass)
        self._replace_base(target, grid, mass)
        return edges

    def _best_of(self, pairs: Pairs, mass: NDArray[np.int64], active: NDArray[np.bool_]) -> Scored:
        strong = pairs.take(supported(pairs, self.config) & active[pairs.first])
        scores = score(strong, mass, self.config)
        top = best(strong, scores, self.config.top_k)
        top = top[scores[top] > 0]
        return strong.first[top], strong.second[top], scores[top]

    def _remembered(self, pairs: Pairs, mass: NDArray[np.int64]) -> NDArray[np.bool_]:
        kept = np.ones(len(pairs), bool)
        if self.config.keep_pairs is not None:
            group = np.cumsum(starts(pairs.first)) - 1
            rows = np.flatnonzero((np.bincount(group) > self.config.keep_pairs)[group])
            crowd = pairs.take(rows)
            kept[rows] = False
            kept[rows[best(crowd, score(crowd, mass, self.config), self.config.keep_pairs)]] = True
        return kept

    def _ranges(self, parts: Sequence[Pairs | PairsFile], nodes: int) -> list[tuple[int, int]]:
        """Ranges of first nodes with about `batch_pairs` counts each; a node is never split."""
        own = _by_node([self.base], nodes, ("first",), weighted=False)
        load = np.cumsum(own + _by_node(parts, nodes, ("first", "second"), weighted=False))
        marks = np.arange(self.config.batch_pairs, load[-1] if nodes else 0, self.config.batch_pairs)
        return list(pairwise(np.unique([0, *np.searchsorted(load, marks).tolist(), nodes]).tolist()))

    def _remains(self, grid: int) -> float | None:
        half_life = self.config.half_life_days
        return None if half_life is None or self.grid is None else 2.0 ** ((self.grid - grid) / half_life)

    def _replace_base(self, target: Path, grid: int, mass: NDArray[np.int64]) -> None:
        if self.grid is not None:
            shutil.rmtree(self.work / str(self.grid), ignore_errors=True)
        self.base, self.mass, self.grid = PairsFile(target), mass, grid
        self._kept.discard(f"{self.folder}/base")

    def _place(self, out: OutputDir, folder: str, names: Sequence[str], made: Path) -> None:
        """Files of the ledger go into the artifact: taken over from the one before, or linked from where they lie."""
        for name in (f"{name}.npy" for name in names):
            if folder in self._kept and self.previous is not None:
                out.adopt(self.previous, f"{folder}/{name}")
            else:
                out.take(made / name, f"{folder}/{name}", ArrayFile(made / name).length)

    def _day_folder(self, day: int) -> str:
        return f"{self.folder}/{part_name(day).removeprefix(EVENT_PARTS).removesuffix('.parquet')}"


_NOTHING: Scored = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))


def _whole(parts: Sequence[Pairs | PairsFile]) -> Pairs:
    return added([block for part in parts for block in part.blocks()])


def _both_ways(parts: Sequence[Pairs | PairsFile], low: int, high: int) -> Iterator[Pairs]:
    for part in parts:
        yield part.between(low, high)
        yield from turned(part, low, high)


def _by_node(parts: Sequence[Pairs | PairsFile], nodes: int, ends: Sequence[str], weighted: bool) -> NDArray[np.int64]:
    """Pairs of each node in the places `ends`, or their weight. A block's sum is below 2**53: exact in float64."""
    total = np.zeros(nodes, np.int64)
    for block in (block for part in parts for block in part.blocks()):
        for end in ends:
            weight = block.weight if weighted else None
            total += np.bincount(getattr(block, end), weight, minlength=nodes).astype(np.int64)
    return total


def _nodes(parts: Sequence[Pairs | PairsFile]) -> int:
    """One more than the largest node; a second node is larger than its first."""
    return max((int(block.second.max()) + 1 for part in parts for block in part.blocks()), default=0)


def _aged(pairs: Pairs, remains: float | None) -> Pairs:
    if remains is None:
        return pairs
    support, weight = _scaled(pairs.support, remains), _scaled(pairs.weight, remains)
    return Pairs(pairs.key, support, weight, pairs.users).take((support > 0) & (weight > 0))


def _scaled(counts: NDArray[Any], remains: float | None) -> NDArray[Any]:
    return counts if remains is None else np.floor(counts * remains).astype(counts.dtype)
