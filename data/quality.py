"""Checks of raw tables: whole files first, before any work is done, then single rows.

A row that breaks a rule goes to the quarantine with its file, row, column and value. More than a tolerated share of
such rows stops the run, with everything needed to repair them on one screen.
"""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from data.engine import Engine
from data.errors import BadDataError, nearest
from data.sources import limits

_CHUNK = 1 << 20
_TEXT_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson")
_SHOWN = 30
_UNREADABLE = (pa.ArrowException, duckdb.Error, EOFError, OSError, zlib.error)
_UNITS = ("iso", "s", "ms", "us")


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn a reader's complaint about the form of `path` into a BadDataError that names the file."""
    try:
        yield
    except duckdb.OutOfMemoryException:
        raise
    except _UNREADABLE as error:
        hint = "Repair the file, or set `delimiter` if its cells are separated by another sign."
        raise BadDataError(f"{path} cannot be read: {str(error)[:600]}\n{hint}") from error


def check_text(path: Path) -> None:
    """Raise BadDataError naming the place when a text file is not UTF-8, unpacks to too much or has too long a line.

    Parquet files pass.
    """
    if not path.name.removesuffix(".gz").endswith(_TEXT_SUFFIXES):
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset, line, open_bytes = 0, 1, 0
    for chunk in _chunks(path):
        open_bytes = _check_lines(path, chunk, line, open_bytes)
        held = decoder.getstate()[0]
        try:
            decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            place = offset - len(held) + error.start
            line += error.object[: error.start].count(b"\n")
            raise _not_utf8(path, line, place, error.object[error.start]) from error
        offset, line = offset + len(chunk), line + chunk.count(b"\n")


def _chunks(path: Path) -> Iterator[bytes]:
    """Pieces of a text file, uncompressed; an empty one marks its end."""
    meter = limits.Meter(path)
    with readable(path), path.open("rb") as raw, gzip.open(raw) if path.suffix == ".gz" else raw as stream:
        while chunk := stream.read(_CHUNK):
            meter.add(len(chunk))
            yield bytes(chunk)
    yield b""


def _check_lines(path: Path, chunk: bytes, line: int, open_bytes: int) -> int:
    """Bytes of the line that is open after `chunk`; raises BadDataError when one is longer than is read at once."""
    first, last = chunk.find(b"\n"), chunk.rfind(b"\n")
    longest = open_bytes + (len(chunk) if first < 0 else first)
    if longest > limits.LINE_BYTES:
        raise BadDataError(
            f"{path}, line {line}: expected at most {limits.LINE_BYTES:,} bytes, got more: a quote that is never "
            "closed, or another format?"
        )
    return longest if first < 0 else len(chunk) - 1 - last


def _not_utf8(path: Path, line: int, offset: int, byte: int) -> BadDataError:
    return BadDataError(
        f"{path}, line {line}, byte {offset}: expected UTF-8 text, got byte 0x{byte:02x}.\n"
        f"If the file is Latin-1, convert it: iconv -f latin1 -t utf-8 {path.name} > fixed-{path.name}"
    )


def check_columns(path: Path, have: Iterable[str], wanted: Iterable[str]) -> None:
    """Raise BadDataError naming every mapped column that the file does not have, and its nearest neighbour."""
    present, asked = list(have), list(wanted)
    for column in asked:
        if present.count(column) > 1:
            raise BadDataError(
                f"{path}: expected one column {column!r}, got {present.count(column)}: rename all but one"
            )
    missing = [column for column in asked if column not in present]
    if missing:
        hints = "\n".join(f"  {column!r}: {nearest(column, present)}" for column in missing)
        raise BadDataError(
            f"{path}: expected column(s) named in the mapping, not found:\n{hints}\n"
            f"The file has: {_listed(present)}. Correct `columns` in the configuration."
        )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) or "no columns") + more


def check_cells(engine: Engine, table: str, unit: str) -> None:
    """Raise BadDataError when `raw` has no rows, or a column does not hold the type or time unit it should.

    A column is wrong as a whole when most of its cells are: then the mapping is at fault, not the rows.
    """
    if not engine.record("count_raw")["rows"]:
        raise BadDataError(f"{table}: expected rows, got none. Check `paths` of [events.files.{table}].")
    for found in engine.records("check_numbers"):
        if 2 * found["read"] < found["given"]:
            raise BadDataError(
                f"{table}.{found['column']}: expected numbers, got text such as {found['example']!r} in "
                f"{found['given'] - found['read']:,} of {found['given']:,} rows. Is another column meant?"
            )
    for found in engine.records("check_times", unit=unit):
        if 2 * found["sensible"] < found["given"]:
            units = next(row for row in engine.records("fitting_units") if row["column"] == found["column"])
            raise _wrong_unit(table, unit, {**found, **units})


def _wrong_unit(table: str, unit: str, found: dict[str, Any]) -> BadDataError:
    best = max(_UNITS, key=lambda name: found[name])
    hint = (
        f'they fit time_unit = "{best}"' if 2 * found[best] >= found["given"] else "they fit no unit: another column?"
    )
    return BadDataError(
        f"{table}.{found['column']}: expected times between 1971 and 2200 in unit {unit!r}, got "
        f"{found['given'] - found['sensible']:,} of {found['given']:,} outside, such as {found['example']!r}: {hint}."
    )


def judge(engine: Engine, table: str, max_bad: float, adds: bool = False) -> tuple[int, int]:
    """Rows read and equal duplicates dropped of the table just typed.

    Raises BadDataError with rule counts, the first five rows and the remedy when more than `max_bad` of its rows, or
    all of them, broke a rule. `adds`: the rows come to others, so that there may also be none.
    """
    counts = engine.record("read_counts", table=table)
    rows, bad = counts["rows"], counts["bad"]
    if rows and (bad > max_bad * rows or (bad == rows and not adds)):
        raise BadDataError("\n".join(_screen(engine, table, rows, bad, max_bad)))
    return rows, counts["equal_duplicates"]


def _screen(engine: Engine, table: str, rows: int, bad: int, max_bad: float) -> list[str]:
    remedy = f"Repair them, or set them aside and go on with --max-bad {_round_up(bad / rows)}."
    return [
        f"{table}: {bad:,} of {rows:,} rows break a rule ({bad / rows:.2%}); {max_bad:.2%} may.",
        *[f"  {rule}: {count:,}" for name, rule, count in engine.rows("findings") if name == table],
        "first rows:",
        *[_example(*row) for row in engine.rows("examples", table=table)],
        "Nothing would be left: repair the files or their mapping." if bad == rows else remedy,
    ]


def _example(file: str, row: int, column: str, rule: str, value: str | None) -> str:
    return f"  {file}:{row}:{column}: {rule}" + ("" if value is None else f" {value[:60]!r}")


def _round_up(share: float) -> float:
    return next((step for step in (0.001, 0.01, 0.05, 0.1, 0.2, 0.5) if share <= step), 1.0)
