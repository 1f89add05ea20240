"""The small shared pieces: schemas, times, configuration, errors, seeds, the weekly grid, category ids."""

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pytest
from pydantic import Field, ValidationError

from data import schema
from data.categories import category_ids
from data.context import RunContext, StageConfig, UtcTime, derive_seed, execution
from data.errors import BadDataError, StrataError, SystemStateError, UsageError, nearest
from data.schema import MICROS_PER_DAY, conform, from_micros, to_micros, visible_from
from data.timegrid import EMBEDDINGS, as_of_grid, date_file, file_date

TABLES = (
    "EVENTS",
    "PRODUCTS",
    "ADVERTISERS",
    "CAMPAIGNS",
    "USERS",
    "PRIMITIVES",
    "PRIMITIVE_EDGES",
    "TOKENS",
    "QUARANTINE",
)


@pytest.mark.parametrize("name", TABLES)
def test_every_schema_carries_its_name_and_version(name):
    metadata = getattr(schema, name).metadata
    assert metadata == {b"strata.table": name.lower().encode(), b"strata.schema_version": b"1"}


def test_embeddings_have_vectors_of_fixed_size():
    assert schema.embeddings_schema(8).field("vector").type == pa.list_(pa.float32(), 8)


@pytest.mark.parametrize(
    ("moment", "micros"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), -1),
        (datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 1_704_067_200_000_000),
    ],
)
def test_times_round_trip_exactly(moment, micros):
    assert to_micros(moment) == micros
    assert from_micros(micros) == moment


def test_a_time_without_zone_is_refused():
    with pytest.raises(BadDataError, match="2024-01-01T00:00:00Z"):
        to_micros(datetime(2024, 1, 1))


def test_visible_from_is_after_it_happened_and_when_it_was_known():
    assert visible_from(np.array([5, 5, 5]), np.array([5, 9, 3])).tolist() == [6, 9, 6]


def test_conform_orders_casts_and_refuses():
    table = pa.table({"extra": [1], "known_at": pa.array([3], pa.int32()), "user_id": ["u"], "attributes": pa.nulls(1)})
    assert conform(table, schema.USERS).to_pylist() == [{"user_id": "u", "attributes": None, "known_at": 3}]
    with pytest.raises(BadDataError, match="expected column 'user_id'"):
        conform(table.drop_columns("user_id"), schema.USERS)
    with pytest.raises(BadDataError, match="'known_at': expected int64, got string"):
        conform(table.set_column(1, "known_at", [["soon"]]), schema.USERS)
    with pytest.raises(BadDataError, match="'user_id': 1 nulls"):
        conform(table.set_column(2, "user_id", pa.nulls(1, pa.string()).cast(pa.string())), schema.USERS)


class Inner(StageConfig):
    width: int = Field(default=2, description="x")
    workers: int = execution(1, "y", ge=1)


class Outer(StageConfig):
    t0: UtcTime = Field(description="z")
    inner: Inner = Field(default=Inner(), description="w")
    maybe: Inner | None = Field(default=None, description="v")
    memory: str = execution("2GB", "u")


def test_result_fields_leave_execution_out_at_every_depth():
    config = Outer(t0=datetime(2024, 1, 1, tzinfo=UTC), inner={"workers": 5})
    assert config.result_fields() == {"t0": "2024-01-01T00:00:00Z", "inner": {"width": 2}, "maybe": None}
    assert config.model_copy(update={"maybe": Inner()}).result_fields()["maybe"] == {"width": 2}


def test_configurations_refuse_unknown_keys_changes_and_naive_times():
    with pytest.raises(ValidationError, match="Extra inputs"):
        Inner(widht=3)
    with pytest.raises(ValidationError, match="frozen"):
        Inner().width = 4
    with pytest.raises(ValidationError, match="greater than or equal"):
        Inner(workers=0)
    with pytest.raises(ValidationError, match="2024-01-01T00:00:00Z"):
        Outer(t0="2024-01-01T00:00:00")


def test_derived_seeds_differ_by_name_and_never_change():
    assert derive_seed(0, "events", "negatives") == 322_917_238_222_489_139
    drawn = {derive_seed(seed, *names) for seed in (0, 1) for names in (("a",), ("b",), ("a", "b"), ("ab",), ("a", 1))}
    assert len(drawn) == 10
    assert all(0 <= seed < 2**63 for seed in drawn)
    with pytest.raises(AttributeError):
        RunContext(threads=1).seed = 3


def test_the_grid_is_weekly_from_t0_and_never_after_the_end():
    t0 = datetime(2024, 1, 1, tzinfo=UTC)
    start = to_micros(t0)
    week = 7 * MICROS_PER_DAY
    assert as_of_grid(t0, start + 2 * week) == [start, start + week, start + 2 * week]
    assert as_of_grid(t0, start + 2 * week - 1) == [start, start + week]
    assert as_of_grid(t0, start - week) == [start]
    assert as_of_grid(t0, start + 2 * MICROS_PER_DAY, every_days=1)[-1] == start + 2 * MICROS_PER_DAY


def test_files_of_dates_sort_as_dates_do_and_name_their_instant():
    start = to_micros(datetime(2024, 2, 20, tzinfo=UTC))
    dates = [start, start + 1, start + 1_000_000, start + MICROS_PER_DAY, start + 400 * MICROS_PER_DAY]
    names = [date_file(EMBEDDINGS, date) for date in dates]
    assert names == sorted(names)
    assert [file_date(name) for name in names] == dates
    assert names[0] == "embeddings/20240220T000000000000Z.parquet"


def test_category_ids_are_the_paths_prefixes():
    assert category_ids(["A", "B", "C"]) == ["A", "A > B", "A > B > C"]
    assert category_ids(["A", None, "", "B"]) == ["A", "A > B"]
    assert category_ids(None) == category_ids([]) == []


def test_errors_carry_exit_codes_and_hints():
    codes = [error.exit_code for error in (StrataError, UsageError, BadDataError, SystemStateError)]
    assert codes == [1, 2, 3, 4]
    assert nearest("evnts", ["events", "graph"]) == "did you mean 'events'?"
    assert nearest("zzz", ["b", "a"]) == "known: a, b"
