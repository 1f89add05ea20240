"""The log as one file a day: `events/<date>.parquet`, by the day on which a row became readable.

A day that is over never changes, so a later run can take its file as it is. Row order within a day: (ts, event_id).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data.artifacts import ArtifactRef, OutputDir
from data.schema import EVENTS, MICROS_PER_DAY, visible_from

EVENT_PARTS = "events/"
"""Name of the whole log in `ArtifactRef.batches` and `ArtifactRef.table`."""

GROUP_ROWS = 131_072
"""Rows of a part's row groups."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def day_of(seen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Day number (days since 1970-01-01 UTC) of rows readable from `seen` [us] on: what is readable at the midnight
    that ends a day belongs to that day."""
    return (seen - 1) // MICROS_PER_DAY


def part_name(day: int) -> str:
    """File name of the part of day number `day`."""
    return f"{EVENT_PARTS}{(_EPOCH + timedelta(days=day)).date().isoformat()}.parquet"


def part_day(name: str) -> int:
    """Day number of a part's file name."""
    return (datetime.fromisoformat(PurePosixPath(name).stem).replace(tzinfo=UTC) - _EPOCH).days


def days(events: ArtifactRef) -> dict[int, int]:
    """Rows of the log by day number, in order; days without events have no part."""
    return {part_day(name): events.rows(name) for name in events.names(EVENT_PARTS)}


def write_events(out: OutputDir, tables: Iterable[pa.Table]) -> int:
    """Write tables of schema EVENTS, sorted by (day, ts, event_id), as one part a day; returns the rows written.

    Memory: one table of the stream and one row group at a time.
    """
    total = 0
    stream = _by_day(tables)
    ahead = next(stream, None)
    while ahead is not None:
        day = ahead[0]

        def of_day() -> Iterator[pa.Table]:
            nonlocal ahead
            while ahead is not None and ahead[0] == day:  # noqa: B023 (consumed before `day` changes)
                yield ahead[1]
                ahead = next(stream, None)

        total += out.write_batches(part_name(day), EVENTS, _regrouped(of_day()))
    return total


def _regrouped(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in pieces of exactly `GROUP_ROWS` (the last is smaller), each contiguous.

    A part's bytes must depend on its own rows only, not on where the stream happened to be cut.
    """
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        while sum(map(len, waiting)) >= GROUP_ROWS:
            whole = pa.concat_tables(waiting)
            yield whole.slice(0, GROUP_ROWS).combine_chunks()
            waiting = [whole.slice(GROUP_ROWS)]
    if waiting and sum(map(len, waiting)):
        yield pa.concat_tables(waiting).combine_chunks()


def in_order(events: pa.Table) -> pa.Table:
    """A table of schema EVENTS sorted as `write_events` wants it."""
    day = pa.array(day_of(visible_from(events["ts"].to_numpy(), events["known_at"].to_numpy())))
    order = [("day", "ascending"), ("ts", "ascending"), ("event_id", "ascending")]
    return events.append_column("day", day).sort_by(order).drop_columns("day").replace_schema_metadata(EVENTS.metadata)


def _by_day(tables: Iterable[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
    for table in (table for table in tables if len(table)):
        day = day_of(visible_from(table["ts"].to_numpy(), table["known_at"].to_numpy()))
        starts = np.flatnonzero(np.diff(day, prepend=np.iinfo(np.int64).min))
        for start, end in zip(starts, [*starts[1:], len(day)], strict=True):
            yield int(day[start]), table.slice(start, end - start)
