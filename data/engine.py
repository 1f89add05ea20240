"""DuckDB in this process: bounded memory, no downloads, and every query a file in data/sql with bound parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from data.errors import SystemStateError

_SQL = Path(__file__).parent / "sql"
_BATCH_ROWS = 65_536


@cache
def sql(name: str) -> str:
    """Text of data/sql/<name>.sql."""
    return (_SQL / f"{name}.sql").read_text(encoding="utf-8")


class Engine:
    """One DuckDB session. Queries are named by their file; parameters are bound by name ($name)."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection

    def run(self, name: str, /, **params: Any) -> None:
        """Run the statements of a query file for their effect; `params` are bound where a statement names them."""
        for statement in self.connection.extract_statements(sql(name)):
            bound = {key: params[key] for key in statement.named_parameters}
            self.connection.execute(statement, bound)

    def rows(self, name: str, /, **params: Any) -> list[tuple[Any, ...]]:
        """All rows of a small answer."""
        return [tuple(row) for row in self.connection.execute(sql(name), params).fetchall()]

    def records(self, name: str, /, **params: Any) -> list[dict[str, Any]]:
        """All rows of a small answer, by column name."""
        answer = self.connection.execute(sql(name), params)
        names = [column[0] for column in answer.description]
        return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]

    def record(self, name: str, /, **params: Any) -> dict[str, Any]:
        """The single row of an answer, by column name."""
        return self.records(name, **params)[0]

    def insert(self, name: str, table: str) -> None:
        """Append the answer of a query to `table`."""
        self.connection.sql(sql(name)).insert_into(table)

    def batches(self, name: str, schema: pa.Schema, /, **params: Any) -> Iterator[pa.RecordBatch]:
        """The answer in Arrow batches cast to `schema`, streamed so that memory does not grow with its rows."""
        reader = self.connection.sql(sql(name), params=params).to_arrow_reader(_BATCH_ROWS)
        for batch in reader:
            columns = [batch.column(field.name).cast(field.type) for field in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


@contextmanager
def session(spill: Path, threads: int, memory_limit: str) -> Iterator[Engine]:
    """A session that spills to folder `spill` above `memory_limit` (such as "2GB") and never fetches an extension.

    Raises SystemStateError when memory or the disk under `spill` does not suffice.
    """
    spill.mkdir(parents=True, exist_ok=True)
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory_limit,
        "temp_directory": str(spill),
        "threads": threads,
        "autoinstall_known_extensions": False,
    }
    try:
        with duckdb.connect(config=settings) as connection:
            engine = Engine(connection)
            engine.run("session")
            yield engine
    except duckdb.OutOfMemoryException as error:
        reason = str(error).splitlines()[0]
        raise SystemStateError(
            f"DuckDB ran out of its {memory_limit} of memory or of disk to spill to in {spill}: {reason}\n"
            "Raise memory_limit in [events], or free some disk."
        ) from error
