"""The weekly `as_of` grid on which the frozen learner emits embeddings and tokens (DESIGN section 1), and its files.

Each date is a file of its own, so that an artifact of a later day takes the dates that it shares as they are.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import PurePosixPath

from data.schema import MICROS_PER_DAY, from_micros, to_micros

EMBEDDINGS = "embeddings/"
"""Name of all dates of an embeddings artifact in `ArtifactRef.batches` and `ArtifactRef.table`, in order of date."""

TOKENS = "tokens/"
"""The same of a tokens artifact."""


def as_of_grid(t0: datetime, end: int, every_days: int = 7) -> list[int]:
    """Dates [us] t0, t0 + every_days, ... not after `end` [us]; always holds t0 itself."""
    start, step = to_micros(t0), every_days * MICROS_PER_DAY
    return list(range(start, max(end, start) + 1, step))


def date_file(folder: str, as_of: int) -> str:
    """File name of a date [us] in EMBEDDINGS or TOKENS; names sort as dates do."""
    return f"{folder}{from_micros(as_of):%Y%m%dT%H%M%S%f}Z.parquet"


def file_date(name: str) -> int:
    """The date [us] of a file name."""
    stem = PurePosixPath(name).stem
    return to_micros(datetime.strptime(stem, "%Y%m%dT%H%M%S%fZ").replace(tzinfo=UTC))
