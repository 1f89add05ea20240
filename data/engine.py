"""DuckDB in this process: bounded memory, no downloads, and every query a file with bound parameters."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from data.errors import SystemStateError

SQL = Path(__file__).parent / "sql"
PIECE_ROWS = 131_072


@cache
def sql(name: str, folder: Path = SQL) -> str:
    """Text of <name>.sql in `folder` (that of this package if not given)."""
    return (folder / f"{name}.sql").read_text(encoding="utf-8")


class Engine:
    """One DuckDB session. Queries are named by their file in folder `queries`; parameters are bound by name ($name)."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, queries: Path = SQL) -> None:
        self.connection = connection
        self.queries = queries

    def sql(self, name: str) -> str:
        """Text of a query file."""
        return sql(name, self.queries)

    def run(self, name: str, /, **params: Any) -> None:
        """Run the statements of a query file for their effect; `params` are bound where a statement names them."""
        for statement in self.connection.extract_statements(self.sql(name)):
            bound = {key: params[key] for key in statement.named_parameters}
            self.connection.execute(statement, bound)

    def rows(self, name: str, /, **params: Any) -> list[tuple[Any, ...]]:
        """All rows of a small answer."""
        return [tuple(row) for row in self.connection.execute(self.sql(name), params).fetchall()]

    def records(self, name: str, /, **params: Any) -> list[dict[str, Any]]:
        """All rows of a small answer, by column name."""
        answer = self.connection.execute(self.sql(name), params)
        names = [column[0] for column in answer.description]
        return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]

    def record(self, name: str, /, **params: Any) -> dict[str, Any]:
        """The single row of an answer, by column name."""
        return self.records(name, **params)[0]

    def insert(self, name: str, table: str) -> None:
        """Append the answer of a query to `table`."""
        self.connection.sql(self.sql(name)).insert_into(table)

    def arrow(self, name: str, /, **params: Any) -> pa.Table:
        """The whole of an answer whose size is known to be bounded; threads may ask at the same time."""
        with self.connection.cursor() as own:
            return own.sql(self.sql(name), params=params).to_arrow_table()

    def batches(self, name: str, /, **params: Any) -> Iterator[pa.RecordBatch]:
        """The answer as a stream, so that memory does not grow with it."""
        yield from self.connection.sql(self.sql(name), params=params).to_arrow_reader(PIECE_ROWS)

    def tables(self, name: str, schema: pa.Schema, /, **params: Any) -> Iterator[pa.Table]:
        """The answer as a stream of pieces (see `in_pieces`)."""
        return in_pieces(self.batches(name, **params), schema)


def in_pieces(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """`batches` in pieces of exactly `PIECE_ROWS` rows (the last is smaller), cast to `schema`.

    The size of a piece does not depend on threads, so that files written from them do not either.
    """
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= PIECE_ROWS:
            whole = pa.Table.from_batches(waiting)
            full = whole.num_rows // PIECE_ROWS * PIECE_ROWS
            for start in range(0, full, PIECE_ROWS):
                yield _cast(whole.slice(start, PIECE_ROWS), schema)
            waiting = whole.slice(full).to_batches()
    if waiting:
        yield _cast(pa.Table.from_batches(waiting), schema)


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [table[field.name].combine_chunks().cast(field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


@contextmanager
def session(
    spill: Path, threads: int, memory_limit: str, queries: Path = SQL, section: str = "events"
) -> Iterator[Engine]:
    """A session that spills to folder `spill` above `memory_limit` (such as "2GB") and never fetches an extension.

    Queries are the files of folder `queries`; `section` is the part of the configuration that holds the limit.

    Raises SystemStateError when memory or the disk under `spill` does not suffice.
    """
    shutil.rmtree(spill, ignore_errors=True)  # what a killed run left there is of no use to this one
    spill.mkdir(parents=True)
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory_limit,
        "temp_directory": str(spill),
        "threads": threads,
        "autoinstall_known_extensions": False,
    }
    try:
        with duckdb.connect(config=settings) as connection:
            Engine(connection).run("session")
            yield Engine(connection, queries)
    except duckdb.OutOfMemoryException as error:
        reason = str(error).splitlines()[0]
        raise SystemStateError(
            f"DuckDB ran out of its {memory_limit} of memory or of disk to spill to in {spill}: {reason}\n"
            f"Raise memory_limit in [{section}], or free some disk."
        ) from error
