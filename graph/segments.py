"""Which days of the log lie together: segments of time, as in a log-structured merge tree.

Size-tiered (as in Bigtable's merging compactions: Chang et al., 2006): a day is a new segment, and joins the one before
as long as that is no more than RATIO times as large. So a day is rewritten about log(days) times, few segments exist,
and the segments depend on the days alone, whether they came one by one or all at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from data.parts import EVENT_PARTS, part_name

RATIO = 4

Item = TypeVar("Item")


@dataclass(frozen=True)
class Segment:
    """Consecutive days of the log with events; `rows` of it in all."""

    days: tuple[int, ...]
    rows: int

    @property
    def name(self) -> str:
        """<first day>_<last day>, as in the names of the log's parts."""
        return span(self.days)


def span(days: Sequence[int]) -> str:
    """<first day>_<last day> of day numbers in order."""
    first, last = (part_name(day).removeprefix(EVENT_PARTS).removesuffix(".parquet") for day in (days[0], days[-1]))
    return f"{first}_{last}"


def plan(rows: Mapping[int, int]) -> list[Segment]:
    """Segments in time order of the days (day number: rows) of a log."""
    found: list[Segment] = []
    for day in sorted(rows):
        found.append(Segment((day,), rows[day]))
        while len(found) > 1 and found[-1].rows * RATIO >= found[-2].rows:
            last = found.pop()
            found[-1] = Segment(found[-1].days + last.days, found[-1].rows + last.rows)
    return found


def batches(items: Sequence[Item], rows: Mapping[Item, int], limit: int) -> list[tuple[Item, ...]]:
    """`items` (days, files) in order in runs of at most `limit` of their `rows` in all; a larger one stands alone."""
    found: list[tuple[Item, ...]] = []
    room = 0
    for item in items:
        if not found or rows[item] > room:
            found.append(())
            room = limit
        found[-1] += (item,)
        room -= rows[item]
    return found
