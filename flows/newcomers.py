"""`strata tokens KIND --new FILE`: tokens of products or advertisers that come as a small table of one's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from rich.box import SIMPLE
from rich.table import Table

from data import snapshot
from data.artifacts import Store
from data.categories import SEPARATOR
from data.errors import BadDataError, UsageError, nearest
from data.schema import ADVERTISERS, PRODUCTS, from_micros, to_micros
from flows.inspection import instant
from flows.summary import wide_console

ATTRIBUTE, LISTED = "attributes.", ";"
"""What the columns of attributes start with; what stands between several pictures or users in a text column."""

KINDS = {"product": PRODUCTS, "advertiser": ADVERTISERS}
_NOT_READ = ("known_at", "first_seen", "video", "attributes")


class NewTable(NamedTuple):
    """Rows of the contract's table, and who engaged with each."""

    rows: list[dict[str, Any]]
    users: list[list[str]]


def read_new(path: Path, kind: str) -> NewTable:
    """Rows of a CSV or Parquet file of new products or advertisers.

    Columns: <kind>_id, and any others of the contract's table; `attributes.NAME` for attributes; `category` as a list
    or as text with " > " between levels; `image` and `users` as lists or with ";" between them. Raises UsageError for
    another kind of file or an unknown column, BadDataError for an unreadable one, a missing id or a price that is none.
    """
    if kind not in KINDS:
        raise UsageError(f"--new reads products and advertisers, not {kind!r}: a new user has nothing but events")
    table = read_file(path)
    own = [name for name in KINDS[kind].names if name not in _NOT_READ]
    for name in table.column_names:
        if name not in (*own, "users") and not (kind == "product" and name.startswith(ATTRIBUTE)):
            raise UsageError(f"{path}: unknown column {name!r}: {nearest(name, [*own, 'users', ATTRIBUTE + 'NAME'])}")
    if f"{kind}_id" not in table.column_names:
        raise BadDataError(f"{path}: expected a column {kind}_id, got {table.column_names}")
    rows, users = [], []
    for number, given in enumerate(table.to_pylist(), start=1):
        row = {name: given.get(name) or None for name in own}
        row["attributes"] = [
            (name.removeprefix(ATTRIBUTE), str(value))
            for name, value in given.items()
            if name.startswith(ATTRIBUTE) and value not in (None, "")
        ]
        row |= _converted(row, f"{path}, row {number}")
        if not row[f"{kind}_id"]:
            raise BadDataError(f"{path}, row {number}: expected a {kind}_id, got none")
        rows.append(row)
        users.append(_listed(given.get("users"), LISTED))
    return NewTable(rows, users)


def read_file(path: Path) -> pa.Table:
    """A small .csv (all text) or .parquet file; raises UsageError for another kind, BadDataError when unreadable."""
    readers: dict[str, Callable[[Path], pa.Table]] = {".csv": _read_csv, ".parquet": pq.read_table}
    if path.suffix not in readers:
        raise UsageError(f"expected a .csv or .parquet file, got {path}")
    if not path.exists():
        raise BadDataError(f"expected a file at {path}, found none")
    try:
        return readers[path.suffix](path)
    except (pa.ArrowInvalid, OSError) as error:
        raise BadDataError(f"{path} is not readable as {path.suffix[1:]}: {str(error).splitlines()[0]}") from error


def _read_csv(path: Path) -> pa.Table:
    """All columns as text, so that an id of digits stays what it is."""
    with pyarrow.csv.open_csv(path) as reader:
        kinds = dict.fromkeys(reader.schema.names, pa.string())
    return pyarrow.csv.read_csv(path, convert_options=pyarrow.csv.ConvertOptions(column_types=kinds))


def _converted(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields that are no text, as the contract has them."""
    found: dict[str, Any] = {}
    if "category" in row:
        found["category"] = _listed(row["category"], SEPARATOR.strip())
    if "image" in row:
        found["image"] = _listed(row["image"], LISTED)
    if row.get("price") is not None:
        try:
            found["price"] = float(row["price"])
        except ValueError as error:
            raise BadDataError(f"{where}: expected a number as price, got {row['price']!r}") from error
    return found


def _listed(value: Any, mark: str) -> list[str]:
    parts = value if isinstance(value, list) else str(value or "").split(mark)
    return [str(part).strip() for part in parts if part and str(part).strip()]


def tokens_of_new(
    store: Store,
    snapshot_id: str | None,
    kind: str,
    path: Path,
    as_of: str | None,
    event_type: str,
    media_root: Path | None,
    out: Path | None,
) -> dict[str, Any]:
    """Tokens of the entities in `path`, seen at `as_of` (by default the snapshot's date), written to Parquet file `out`
    if that is given. Raises as `read_new` and `hierarchy.unseen.embed_new` do."""
    given = read_new(path, kind)
    if out is not None and out.suffix != ".parquet":
        raise UsageError(f"--out: expected a .parquet file, got {out}")
    from hierarchy.unseen import Frozen, embed_new

    published = snapshot.load(store, snapshot_id)
    frozen = Frozen(*(published.ref(store, stage) for stage in Frozen._fields))
    time = published.as_of if as_of is None else to_micros(instant(as_of))
    found = embed_new(frozen, kind, given.rows, time, given.users, event_type, media_root)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(found.tokens, out, compression="zstd")
    return {
        "entity_type": kind,
        "entities": len(found.ids),
        "as_of": str(from_micros(time).date()),
        "out": None if out is None else str(out.resolve()),
        "unread": found.unread,
        "tokens": found.tokens.drop_columns(["entity_type", "as_of", "model_version"]).to_pylist(),
    }


def render_new(found: dict[str, Any]) -> None:
    """Print the strongest token of each level of every new entity, and where all of them were written."""
    table = Table(found["entity_type"], "level", "primitive", "weight", box=SIMPLE)
    for row in found["tokens"]:
        if row["rank"] == 0:
            table.add_row(row["entity_id"], str(row["level"]), row["primitive_id"], f"{row['weight']:.2f}")
    wide_console().print(table)
    for name, reason in sorted(found["unread"].items()):
        print(f"picture {name} was not read: {reason}")
    print(f"{found['entities']:,} entities as of {found['as_of']}" + (f": {found['out']}" if found["out"] else ""))
