"""The out-of-core build: scan, number, encode, guard, sort, merge, each step in units that survive a killed run.

    work/scan/<days>     events of a chunk with ids as numbers of a dictionary   graph.scan
    work/nodes           node tables, and for each scan the numbers of its ids   graph.ids
    work/runs/<days>     a chunk sorted into CSRs                                graph.runs
    work/segments/<days> runs and lent segments merged                           graph.merge

A unit is made when the next one asks for it, and removed once that is there. What it holds is a pure function of its
name and of the artifact's key, so a task runner may spread units over workers.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data.artifacts import ArtifactRef
from data.engine import PIECE_ROWS, Engine
from data.parts import days, part_name
from data.progress import Progress
from graph.arrays import save
from graph.catalogue import Catalogue
from graph.chunks import Chunk
from graph.encode import collect, deal, encode
from graph.guards import add_counts, guard
from graph.history import History, Nodes
from graph.ids import NODES, number, translate
from graph.merge import merge
from graph.runs import interest, write_run
from graph.scan import ENDS, Source, pieces, scan
from graph.segments import Segment, batches, span
from graph.settings import Config
from graph.store import NODE_TYPES
from graph.together import Together
from graph.units import unit

NAMES = 1 << 21
"""Ids of scanned chunks that are translated at a time: about 100 MB."""


@dataclass(frozen=True)
class Made:
    """A finished segment: its folder, what making it gave, and its `record` in the earlier graph that lent it whole."""

    segment: Segment
    folder: Path
    facts: Mapping[str, Any]
    record: Mapping[str, Any] | None = None


@dataclass
class Assembly:
    """One build: `events` to segments in folder `work`, with what `history` can lend. `seconds` fills by step, added
    up over threads: chunks are worked on side by side."""

    config: Config
    events: ArtifactRef
    history: History
    engine: Engine
    work: Path
    threads: int
    catalogue: Catalogue
    seconds: dict[str, float] = field(default_factory=dict)
    together: Together | None = None
    _clock: Lock = field(default_factory=Lock)
    _spare: int = 1  # threads that each chunk may use beside its own

    def __post_init__(self) -> None:
        self.rows = days(self.events)

    def todo(self, segment: Segment) -> list[tuple[int, ...]]:
        """The days of a segment that no lent one holds, in chunks."""
        lent = sum(map(len, self.history.within(segment)))
        return batches(segment.days[lent:], self.rows, self.config.chunk_rows)

    def build(self, segments: Sequence[Segment], progress: Progress) -> tuple[Nodes, list[Made]]:
        """Number the nodes and make all segments, in time order."""
        unit(self.work / "nodes", lambda draft: self._number(segments, draft))
        nodes = Nodes(self.work / "nodes")
        self.together = self._together()
        made = []
        with progress.step("build segments", sum(self.rows.values()), "events") as step:
            for segment in segments:
                made.append(self._made(segment, nodes))
                step.advance(segment.rows)
        return nodes, made

    def _made(self, segment: Segment, nodes: Nodes) -> Made:
        lent = self.history.within(segment)
        if lent == [segment.days]:
            return Made(segment, self.history.folder(segment.days), {}, self.history.records[segment.days])
        folder, taken_in = self.work / "segments" / segment.name, False

        def make(draft: Path) -> dict[str, Any]:
            nonlocal taken_in
            batches = self.todo(segment)
            self._spare = max(self.threads // max(len(batches), 1), 1)
            with ThreadPoolExecutor(self.threads) as pool:
                counts = list(pool.map(lambda batch: self._run(batch, nodes), batches))
            related, taken_in = self._related(segment, nodes), True
            return self._segment(segment, nodes, counts, related, draft)

        facts = unit(folder, make)
        if not taken_in:  # finished by an earlier run, but the ledgers still have to know its days
            self._related(segment, nodes)
        for batch in self.todo(segment):
            shutil.rmtree(self.work / "runs" / span(batch), ignore_errors=True)
        return Made(segment, folder, facts)

    def _together(self) -> Together | None:
        if self.config.co_engagement is None:
            return None
        before = max(self.history.records)[-1] + 1 if self.history.records else 0
        shutil.rmtree(self.work / "ledger", ignore_errors=True)
        shutil.rmtree(self.work / "related", ignore_errors=True)
        return Together(self.config.co_engagement, self.work, self.history.previous, before)

    def _number(self, segments: Sequence[Segment], draft: Path) -> None:
        jobs = [job for segment in segments for batch in self.todo(segment) for job in self._parts_of(batch)]
        with ThreadPoolExecutor(self.threads) as pool:
            scans = list(pool.map(self._scan, *zip(*jobs, strict=True))) if jobs else []
        with self._timed("number"):
            for kind in NODE_TYPES:
                named = [folder / f"{kind}.parquet" for folder in scans if kind != "category"]
                settled, mentioned = self.history.settled(kind), self.catalogue.known_after(self.history.end, kind)
                pieces = number(self.engine, settled, mentioned, named)
                _write_nodes(draft / f"{kind}.parquet", pieces)
        with self._timed("encode"):
            for end in ENDS:
                files = [folder / f"{end}.parquet" for folder in scans]
                rows = {file: pq.read_metadata(file).num_rows for file in files}
                for group in batches(files, rows, NAMES):
                    for file, ids in zip(group, translate(self.engine, group, draft / f"{end}.parquet"), strict=True):
                        save(draft / "ids" / file.parent.name / f"{end}.npy", ids)

    def _segment(
        self,
        segment: Segment,
        nodes: Nodes,
        fresh: Sequence[Mapping[str, Any]],
        related: Sequence[Path],
        draft: Path,
    ) -> dict[str, Any]:
        lent, todo = self.history.within(segment), self.todo(segment)
        records = [*(self.history.records[own] for own in lent), *fresh]
        sources = [self.history.folder(own) for own in lent] + [self.work / "runs" / span(batch) for batch in todo]
        sources += related
        step = "compact" if lent else "merge"
        with self._timed(step):
            moved = merge(sources, nodes.sizes(segment.days[-1]), self.threads, draft)
        counts: dict[str, Any] = {}
        for record in records:
            counts = add_counts(counts, record["guards"])
        return {"guards": counts, step: moved, "new_rows": sum(self.rows[day] for batch in todo for day in batch)}

    def _run(self, batch: tuple[int, ...], nodes: Nodes) -> dict[str, Any]:
        large = self.rows[batch[0]] > self.config.chunk_rows
        make = self._large_run if large else self._plain_run
        facts: dict[str, Any] = unit(self.work / "runs" / span(batch), lambda draft: make(batch, nodes, draft))
        for stale in ("scan", "dealt", "hands"):
            for folder in (self.work / stale).glob(f"{span(batch)}*"):
                shutil.rmtree(folder)
        return facts

    def _plain_run(self, batch: tuple[int, ...], nodes: Nodes, draft: Path) -> dict[str, Any]:
        (scanned,) = self._scans(batch)
        with self._timed("encode"):
            chunk = encode(scanned, nodes.ids(scanned.name), batch)
        return self._sort(span(batch), chunk, nodes, draft)

    def _related(self, segment: Segment, nodes: Nodes) -> list[Path]:
        """Folders of the co-engagement edges that the days of a segment bring up, in time order."""
        if self.together is None:
            return []
        names = [name for batch in self.todo(segment) for name in self._names(batch)]
        folder = self.work / "related" / segment.name
        with self._timed("co-engagement"):
            return self.together.edges(names, nodes.sizes(segment.days[-1]), folder)

    def _large_run(self, batch: tuple[int, ...], nodes: Nodes, draft: Path) -> dict[str, Any]:
        """A day larger than a chunk: its users are dealt out, so that each still has the whole day in one chunk."""
        scans, dealt = self._scans(batch), []
        for scanned in scans:
            with self._timed("encode"):
                folder = self.work / "dealt" / scanned.name
                bounds = unit(folder, partial(self._deal, scanned, len(scans), batch, nodes))
            dealt.append((folder, bounds))
        counts: dict[str, Any] = {}
        hands = [self.work / "hands" / name for name in self._names(batch)]
        for hand, folder in enumerate(hands):
            more = unit(folder, partial(self._hand, folder.name, dealt, hand, batch[0], nodes))
            counts = add_counts(counts, more["guards"])
        with self._timed("merge"):
            merge(hands, nodes.sizes(batch[0]), self.threads, draft, ordered=False)
        return {"guards": counts}

    def _deal(self, scanned: Path, hands: int, batch: tuple[int, ...], nodes: Nodes, draft: Path) -> list[int]:
        return deal(encode(scanned, nodes.ids(scanned.name), batch), hands, draft)

    def _hand(
        self, name: str, dealt: Sequence[tuple[Path, list[int]]], hand: int, day: int, nodes: Nodes, draft: Path
    ) -> dict[str, Any]:
        return self._sort(name, collect(dealt, hand, day), nodes, draft)

    def _sort(self, name: str, chunk: Chunk, nodes: Nodes, draft: Path) -> dict[str, Any]:
        counts: dict[str, Any] = {}
        whole = chunk
        if self.config.guards is not None:
            with self._timed("guard"):
                chunk, counts = guard(whole, self.config.guards)
        engaged = interest(self.config.engagement)
        if self.together is not None:
            with self._timed("co-engagement"):
                self.together.count(name, whole, chunk, engaged)
        with self._timed("sort"):
            write_run(chunk, engaged, nodes.sizes(chunk.last_day), draft, self._spare)
        return {"guards": counts}

    def _scans(self, batch: tuple[int, ...]) -> list[Path]:
        """Folders with the scanned events of a chunk: one, or several for a day too large for one."""
        return [self._scan(name, sources) for name, sources in self._parts_of(batch)]

    def _parts_of(self, batch: tuple[int, ...]) -> list[tuple[str, list[Source]]]:
        return list(zip(self._names(batch), self._sources(batch), strict=True))

    def _sources(self, batch: tuple[int, ...]) -> list[list[Source]]:
        files = [self.events.file(part_name(day)) for day in batch]
        if self.rows[batch[0]] > self.config.chunk_rows:
            return [[source] for source in pieces(files[0], self.config.chunk_rows)]
        return [[Source(file) for file in files]]

    def _names(self, batch: tuple[int, ...]) -> list[str]:
        """Names of the parts of a chunk: they say which days, and of how many parts it is which."""
        count = len(self._sources(batch))
        return [span(batch)] if count == 1 else [f"{span(batch)}.{part}of{count}" for part in range(count)]

    def _scan(self, name: str, sources: Sequence[Source]) -> Path:
        folder = self.work / "scan" / name
        with self._timed("scan"):
            unit(folder, lambda draft: scan(sources, self.config.event_types, draft))
        return folder

    @contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        with self._clock:
            self.seconds[step] = self.seconds.get(step, 0.0) + time.perf_counter() - start


def _write_nodes(file: Path, tables: Iterator[pa.Table]) -> None:
    options: dict[str, Any] = {"use_dictionary": False, "column_encoding": {"known_at": "DELTA_BINARY_PACKED"}}
    with pq.ParquetWriter(file, NODES, compression="zstd", write_page_checksum=True, **options) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=PIECE_ROWS)
