"""The memory of co-engagement: pair counts up to the last grid date, those of each day since, and the edges they give.

    pairs/<relation>/base/{key,support,weight,users,mass}.npy   both directions of every pair, up to the last grid date
    pairs/<relation>/<date>/{key,support,weight,users}.npy      first < second, for each day since
    pairs/<relation>/ledger.json                                the grid date and the days, as day numbers

A grid date g stands for all days before it. Its edges become visible at its midnight, so nothing after day g - 1 has a
part in them. What a day added is written once and stays until a grid date takes it into the base; a base is written
once and stays until the next grid date with events. So day by day leaves the very files that all days at once leave.
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
from data.schema import MICROS_PER_DAY
from graph.coengagement import Config
from graph.csr import EdgeList
from graph.groups import starts
from graph.pairs import COLUMNS, ArrayFile, Pairs, added
from graph.pmi import best, score, supported
from graph.store import Relation

Scored = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
"""First node, second node and score of pairs, each (n,)."""


class Ledger:
    """Counts of one relation. Add days in any order, `close` what is over, `write` the rest into the artifact.

    `work` is a folder for files in the making. `previous` is an earlier graph artifact made with the same config, of
    which the days before `before` still hold; without one the ledger starts empty.
    """

    def __init__(
        self, config: Config, relation: Relation, work: Path, previous: ArtifactRef | None = None, before: int = 0
    ) -> None:
        self.config, self.folder, self.work, self.previous = config, f"pairs/{relation.folder}", work, previous
        self.base, self.mass = Pairs.empty(), np.zeros(0, np.int64)
        self.grid: int | None = None
        self._days: dict[int, list[Pairs]] = {}
        self._kept: set[str] = set()  # folders taken over as they are
        if previous is not None and previous.has(f"{self.folder}/ledger.json"):
            self._resume(previous, before)

    def add(self, day: int, pairs: Pairs) -> None:
        """Add a part of the counts of `day` (first < second), which must not lie before the last grid date."""
        self._days.setdefault(day, []).append(pairs)
        self._kept.discard(self._day_folder(day))

    def close(self, complete: int) -> Iterator[tuple[int, EdgeList]]:
        """Take in the days before each grid date up to day `complete` (all days before it are over).

        Yields (g - 1, edges) for grid dates g with news: visible from g's midnight on, weighted by score. Only nodes
        whose counts grew since the last one get edges; the older ones of the others still say what is known. Memory:
        about 120 bytes for each of `batch_pairs` and 24 bytes a node.
        """
        step = self.config.grid_days
        for grid in sorted({(day // step + 1) * step for day in self._days}):
            if grid <= complete:
                yield grid - 1, self._take_in(grid)

    def write(self, out: OutputDir) -> dict[str, int]:
        """Write the state into the artifact, taking over unchanged files.

        Returns how many pairs are remembered, in both directions, and wait for the next grid date, in one.
        """
        if self.grid is not None:
            for name in (*COLUMNS, "mass"):
                self._place(out, f"{self.folder}/base/{name}.npy")
        for day in sorted(self._days):
            folder = self._day_folder(day)
            pairs = None if folder in self._kept else added(self._days[day])
            for name in COLUMNS:
                file = f"{folder}/{name}.npy"
                if pairs is not None:
                    out.write_array(file, getattr(pairs, name))
                else:
                    self._place(out, file)
        out.write_json(f"{self.folder}/ledger.json", {"grid": self.grid, "days": sorted(self._days)})
        waiting = sum(out.rows[f"{self._day_folder(day)}/key.npy"] for day in self._days)
        return {"remembered": len(self.base), "waiting": waiting}

    def _resume(self, previous: ArtifactRef, before: int) -> None:
        state = previous.json(f"{self.folder}/ledger.json")
        self.grid = state["grid"]
        if self.grid is not None:
            self.base = self._open(previous, f"{self.folder}/base")
            self.mass = np.asarray(previous.array(f"{self.folder}/base/mass.npy"))
            self._kept.add(f"{self.folder}/base")
        for day in (day for day in state["days"] if day < before):
            self._days[day] = [self._open(previous, self._day_folder(day))]
            self._kept.add(self._day_folder(day))

    def _take_in(self, grid: int) -> EdgeList:
        parts = [part for day in sorted(self._days) if day < grid for part in self._days.pop(day)]
        fresh = _by_node(parts, _nodes(parts), weighted=True)
        remains = self._remains(grid)
        mass = np.zeros(max(len(fresh), len(self.mass)), np.int64)
        mass[: len(self.mass)] = _scaled(self.mass, remains)
        mass[: len(fresh)] += fresh
        active = np.zeros(len(mass), bool)
        active[: len(fresh)] = fresh > 0
        target = self.work / str(grid)
        files = {name: ArrayFile(target / f"{name}.npy", kind) for name, kind in COLUMNS.items()}
        edges = []
        for low, high in self._ranges(parts, len(mass)):
            pairs = added([_aged(self.base.between(low, high), remains), *_both_ways(parts, low, high)])
            edges.append(self._best_of(pairs, mass, active))
            keep = self._remembered(pairs, mass)
            for name, values in pairs.take(keep).columns().items():
                files[name].append(values)
        for file in files.values():
            file.close()
        np.save(target / "mass.npy", mass, allow_pickle=False)
        self._replace_base(target, grid, mass)
        return _edge_list(edges, grid)

    def _best_of(self, pairs: Pairs, mass: NDArray[np.int64], active: NDArray[np.bool_]) -> Scored:
        rows = np.flatnonzero(supported(pairs, self.config) & active[pairs.first])
        strong = pairs.take(rows)
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

    def _ranges(self, parts: Sequence[Pairs], nodes: int) -> list[tuple[int, int]]:
        """Ranges of first nodes with about `batch_pairs` counts each; a node is never split."""
        load = np.cumsum(_in_first_place(self.base, nodes) + _by_node(parts, nodes, weighted=False))
        marks = np.arange(0, load[-1] if nodes else 0, self.config.batch_pairs)
        cuts = np.unique([0, *np.searchsorted(load, marks[1:], side="left").tolist(), nodes]).tolist()
        return list(pairwise(cuts))

    def _remains(self, grid: int) -> float | None:
        half_life = self.config.half_life_days
        return None if half_life is None or self.grid is None else 2.0 ** ((self.grid - grid) / half_life)

    def _replace_base(self, target: Path, grid: int, mass: NDArray[np.int64]) -> None:
        old = None if self.grid is None else self.work / str(self.grid)
        self.base, self.mass, self.grid = Pairs.open(target), mass, grid
        self._kept.discard(f"{self.folder}/base")
        if old is not None and old.exists():
            shutil.rmtree(old)

    def _place(self, out: OutputDir, file: str) -> None:
        """A file of the ledger goes into the artifact: taken over from the one before, or moved from `work`."""
        folder, name = file.rsplit("/", 1)
        if folder in self._kept and self.previous is not None:
            out.adopt(self.previous, file)
            return
        source = self.work / str(self.grid) / name
        shutil.move(source, out.file(file))
        out.rows[file] = len(self.mass if name == "mass.npy" else self.base)

    def _open(self, previous: ArtifactRef, folder: str) -> Pairs:
        return Pairs(**{name: previous.array(f"{folder}/{name}.npy") for name in COLUMNS})

    def _day_folder(self, day: int) -> str:
        return f"{self.folder}/{part_name(day).removeprefix(EVENT_PARTS).removesuffix('.parquet')}"


def _both_ways(parts: Sequence[Pairs], low: int, high: int) -> Iterator[Pairs]:
    for part in parts:
        yield part.between(low, high)
        yield from part.turned(low, high)


def _in_first_place(pairs: Pairs, nodes: int) -> NDArray[np.int64]:
    return np.diff(np.searchsorted(pairs.key, np.arange(nodes + 1) << 32))


def _by_node(parts: Sequence[Pairs], nodes: int, weighted: bool) -> NDArray[np.int64]:
    """Pairs of each node, in either place, or their weight. A block's sum is below 2**53: float64 holds it exactly."""
    total = np.zeros(nodes, np.int64)
    for block in (block for part in parts for block in part.blocks()):
        for end in (block.first, block.second):
            total += np.bincount(end, block.weight if weighted else None, minlength=nodes).astype(np.int64)
    return total


def _nodes(parts: Sequence[Pairs]) -> int:
    """One more than the largest node; a second node is larger than its first."""
    return max((int(block.second.max()) + 1 for part in parts for block in part.blocks()), default=0)


def _aged(pairs: Pairs, remains: float | None) -> Pairs:
    if remains is None:
        return pairs
    support, weight = _scaled(pairs.support, remains), _scaled(pairs.weight, remains)
    return Pairs(pairs.key, support, weight, pairs.users).take((support > 0) & (weight > 0))


def _scaled(counts: NDArray[Any], remains: float | None) -> NDArray[Any]:
    return counts if remains is None else np.floor(counts * remains).astype(counts.dtype)


def _edge_list(found: Sequence[Scored], grid: int) -> EdgeList:
    none = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))
    src, dst, weight = (np.concatenate(column) for column in zip(none, *found, strict=True))
    seen = np.full(len(src), grid * MICROS_PER_DAY)
    return EdgeList(src, dst, seen - 1, seen, weight)
