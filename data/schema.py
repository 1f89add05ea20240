"""Arrow schemas of every table that crosses a stage, with their version in the schema metadata.

Ids are strings from end to end. Times are int64 microseconds since 1970-01-01 UTC: `ts` is when something
happened, `known_at` when it could first be read. A row describes an example at time t only if
``ts < t and known_at <= t``, which is ``visible_from(ts, known_at) <= t``.
"""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data.errors import BadDataError

SCHEMA_VERSION = 1
MICROS_PER_DAY = 86_400_000_000

EVENT_TYPES = ("impression", "view", "click", "cart", "purchase", "conversion", "interested", "not_interested")
"""The ordered funnel, then explicit feedback (`not_interested` is a true negative)."""

ENTITY_TYPES = ("user", "advertiser", "product")
TIME_KINDS = ("clock", "order", "none")

_ATTRIBUTES = pa.map_(pa.string(), pa.string())


def _schema(name: str, fields: list[tuple[str, pa.DataType, bool]]) -> pa.Schema:
    columns = [pa.field(column, kind, nullable=nullable) for column, kind, nullable in fields]
    return pa.schema(columns, metadata={"strata.table": name, "strata.schema_version": str(SCHEMA_VERSION)})


EVENTS = _schema(
    "events",
    [
        ("event_id", pa.string(), False),
        ("user_id", pa.string(), False),
        ("product_id", pa.string(), True),
        ("advertiser_id", pa.string(), True),
        ("campaign_id", pa.string(), True),
        ("event_type", pa.string(), False),
        ("ts", pa.int64(), False),
        ("known_at", pa.int64(), False),
        ("value", pa.float32(), True),
        ("surface", pa.string(), True),
        ("position", pa.int32(), True),
        ("request_id", pa.string(), True),
        ("sample_prob", pa.float32(), False),
        ("propensity", pa.float32(), True),
        ("source", pa.string(), False),
    ],
)
PRODUCTS = _schema(
    "products",
    [
        ("product_id", pa.string(), False),
        ("advertiser_id", pa.string(), True),
        ("title", pa.string(), True),
        ("description", pa.string(), True),
        ("category", pa.list_(pa.string()), True),
        ("image", pa.list_(pa.string()), True),
        ("video", pa.string(), True),
        ("attributes", _ATTRIBUTES, True),
        ("price", pa.float32(), True),
        ("first_seen", pa.int64(), False),
        ("known_at", pa.int64(), False),
    ],
)
ADVERTISERS = _schema(
    "advertisers",
    [
        ("advertiser_id", pa.string(), False),
        ("name", pa.string(), True),
        ("description", pa.string(), True),
        ("vertical", pa.string(), True),
        ("known_at", pa.int64(), False),
    ],
)
CAMPAIGNS = _schema(
    "campaigns",
    [
        ("campaign_id", pa.string(), False),
        ("advertiser_id", pa.string(), True),
        ("name", pa.string(), True),
        ("kind", pa.string(), True),
        ("start", pa.int64(), True),
        ("end", pa.int64(), True),
        ("known_at", pa.int64(), False),
    ],
)
USERS = _schema(
    "users",
    [("user_id", pa.string(), False), ("attributes", _ATTRIBUTES, True), ("known_at", pa.int64(), False)],
)
PRIMITIVES = _schema(
    "primitives",
    [
        ("vocab_version", pa.string(), False),
        ("level", pa.int32(), False),
        ("primitive_id", pa.string(), False),
        ("parent_id", pa.string(), True),
        ("vector", pa.list_(pa.float32()), False),
        ("mass", pa.float32(), False),
        ("label", pa.string(), False),
        ("top_terms", pa.list_(pa.string()), False),
        ("top_products", pa.list_(pa.string()), False),
    ],
)
PRIMITIVE_EDGES = _schema(
    "primitive_edges",
    [
        ("level", pa.int32(), False),
        ("source", pa.string(), False),
        ("target", pa.string(), False),
        ("relation", pa.string(), False),
        ("weight", pa.float32(), False),
    ],
)
TOKENS = _schema(
    "tokens",
    [
        ("entity_id", pa.string(), False),
        ("entity_type", pa.string(), False),
        ("level", pa.int32(), False),
        ("primitive_id", pa.string(), False),
        ("weight", pa.float32(), False),
        ("residual", pa.float32(), False),
        ("rank", pa.int32(), False),
        ("vocab_version", pa.string(), False),
        ("model_version", pa.string(), False),
        ("as_of", pa.int64(), False),
    ],
)
SPLIT = _schema(
    "split",
    [
        ("event_id", pa.string(), False),
        ("user_id", pa.string(), False),
        ("product_id", pa.string(), False),
        ("part", pa.string(), False),
    ],
)
"""The published split of a research set: the part (train, valid or test) of each event."""
QUARANTINE = _schema(
    "quarantine",
    [
        ("table", pa.string(), False),
        ("file", pa.string(), False),
        ("row", pa.int64(), False),
        ("column", pa.string(), False),
        ("rule", pa.string(), False),
        ("value", pa.string(), True),
    ],
)


def embeddings_schema(dim: int) -> pa.Schema:
    """Schema of `embeddings` for unit-norm vectors of `dim` float32 components."""
    return _schema(
        "embeddings",
        [
            ("entity_id", pa.string(), False),
            ("entity_type", pa.string(), False),
            ("head", pa.int32(), False),
            ("vector", pa.list_(pa.float32(), dim), False),
            ("popularity", pa.float32(), False),
            ("degree", pa.int64(), False),
            ("model_version", pa.string(), False),
            ("as_of", pa.int64(), False),
        ],
    )


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970-01-01 UTC of an aware `moment`; raises BadDataError when it is naive."""
    if moment.tzinfo is None:
        raise BadDataError(f"expected a time with a zone (write {moment.isoformat()}Z), got {moment.isoformat()}")
    delta = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def from_micros(micros: int) -> datetime:
    """The aware UTC datetime of `micros` microseconds since 1970-01-01."""
    return datetime.fromtimestamp(micros // 1_000_000, tz=UTC).replace(microsecond=micros % 1_000_000)


def visible_from(ts: NDArray[np.int64], known_at: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first time t [us] at which rows may be used: ``ts < t and known_at <= t``; shapes (n,) -> (n,)."""
    return np.maximum(ts + 1, known_at)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """`table` with exactly the columns, order, types and metadata of `schema`.

    Raises BadDataError naming the column when one is missing, cannot be cast, or holds a null it may not hold.
    """
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            raise BadDataError(f"expected column {field.name!r} ({field.type}), got {table.column_names}")
        column = table[field.name]
        if column.type != field.type:
            try:
                column = column.cast(field.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                came = f"got {column.type}: {error}"
                raise BadDataError(f"column {field.name!r}: expected {field.type}, {came}") from error
        if not field.nullable and column.null_count:
            raise BadDataError(f"column {field.name!r}: {column.null_count} nulls where none is allowed")
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)
