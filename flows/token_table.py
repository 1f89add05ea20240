"""`strata tokens table`: interest tokens as a point-in-time feature table in one Parquet file, for use outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from data import snapshot
from data.artifacts import Store
from data.context import RunContext
from data.errors import UsageError
from data.schema import from_micros, to_micros
from flows.inspection import instant


def write(
    store: Store,
    snapshot_id: str | None,
    rows: Path | None,
    as_of: str | None,
    out: Path,
    flat: bool,
    stale_days: int,
) -> dict[str, Any]:
    """Write the tokens of each row of file `rows`, or of every entity at `as_of`, to Parquet file `out`.

    Raises UsageError when neither is given or `out` is no .parquet file, else as `ranking.asked_rows.read_asked` does.
    """
    if rows is None and as_of is None:
        raise UsageError(
            "expected a file of entity_type, entity_id, ts with --rows, or a time with --as-of for everyone"
        )
    if out.suffix != ".parquet":
        raise UsageError(f"--out: expected a .parquet file, got {out}")
    ts = None if as_of is None else to_micros(instant(as_of))
    published = snapshot.load(store, snapshot_id)
    from ranking.asked_rows import read_asked
    from ranking.token_table import TokenTable, write_table

    table = TokenTable.open(published.ref(store, "tokens"), RunContext(threads=1))
    asked = table.everyone(int(ts or 0)) if rows is None else read_asked(rows, ts)
    found = write_table(table, asked, out, stale_days, flat)
    span: dict[str, Any] = {
        name: from_micros(found.pop(name)).isoformat() for name in ("first", "last") if name in found
    }
    return {
        "out": str(out.resolve()),
        "rows": sum(found.values()),
        **found,
        **span,
        "snapshot": published.id,
        "vocab_version": published.vocab_version,
        "columns": table.schema(flat).names,
    }


def render(found: dict[str, Any]) -> None:
    """Print what was written and how many rows have tokens."""
    print(f"{found['rows']:,} rows: {found['ok']:,} ok, {found['stale']:,} stale, {found['missing']:,} missing")
    if "first" in found:
        print(f"times      {found['first']} to {found['last']}")
    print(f"snapshot   {found['snapshot']} (vocabulary {found['vocab_version']})")
    print(f"columns    {', '.join(found['columns'][:9])}" + (", ..." if len(found["columns"]) > 9 else ""))
    print(f"written    {found['out']}")
