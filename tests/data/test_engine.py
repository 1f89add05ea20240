"""The DuckDB session: named queries, bound parameters, pieces of a fixed size."""

import duckdb
import pyarrow as pa
import pytest

import graph.ids
from data import engine as engines

QUERIES = {
    "numbers": "SELECT range AS n, range::VARCHAR AS text FROM range($count) ORDER BY n DESC;",
    "two_steps": "CREATE TABLE t AS SELECT $a AS a; INSERT INTO t SELECT $b; -- each binds its own\n",
    "all_of_t": "SELECT a FROM t ORDER BY a",
    "zone": "SELECT epoch_us(TIMESTAMPTZ '2024-01-01 00:00:00') AS micros, current_setting('TimeZone') AS zone",
}


@pytest.fixture
def engine(tmp_path):
    for name, text in QUERIES.items():
        (tmp_path / f"{name}.sql").write_text(text)
    with engines.session(tmp_path / "spill", 2, "200MB", queries=tmp_path) as opened:
        yield opened


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (10, [10]), (64, [64]), (150, [64, 64, 22])])
def test_answers_stream_in_pieces_of_one_size_and_the_schemas_types(engine, monkeypatch, count, sizes):
    monkeypatch.setattr(engines, "PIECE_ROWS", 64)
    schema = pa.schema([("text", pa.string()), ("n", pa.int32())], metadata={"k": "v"})
    pieces = list(engine.tables("numbers", schema, count=count))
    assert [piece.num_rows for piece in pieces] == sizes
    assert [n for piece in pieces for n in piece["n"].to_pylist()] == list(range(count))[::-1]
    assert all(piece.schema.equals(schema, check_metadata=True) for piece in pieces)
    assert all(piece["n"].num_chunks == 1 for piece in pieces)


def test_each_statement_of_a_file_binds_the_parameters_it_names(engine):
    engine.run("two_steps", a=2, b=1, unused=3)
    assert engine.rows("all_of_t") == [(1,), (2,)]
    assert engine.records("all_of_t") == [{"a": 1}, {"a": 2}]
    engine.insert("all_of_t", "t")
    assert len(engine.rows("all_of_t")) == 4


def test_a_parameter_is_a_value_never_sql(engine):
    engine.run("two_steps", a="x'; DROP TABLE t; --", b="y")
    assert engine.rows("all_of_t")[0] == ("x'; DROP TABLE t; --",)


def test_times_without_zone_are_utc_wherever_the_machine_is(engine):
    assert engine.record("zone") == {"micros": 1_704_067_200_000_000, "zone": "UTC"}


def test_a_session_clears_what_a_killed_one_spilled(tmp_path):
    (tmp_path / "spill").mkdir()
    (tmp_path / "spill" / "stale.tmp").write_text("x")
    with engines.session(tmp_path / "spill", 1, "100MB"):
        assert not (tmp_path / "spill" / "stale.tmp").exists()


def test_other_errors_of_duckdb_pass_unchanged(engine):
    with pytest.raises(duckdb.CatalogException):
        engine.rows("all_of_t")


@pytest.mark.parametrize(("folder", "fewest"), [(engines.SQL, 20), (graph.ids.SQL, 3)])
def test_every_query_file_parses(folder, fewest):
    with duckdb.connect() as connection:
        names = [path.stem for path in folder.glob("*.sql")]
        assert len(names) >= fewest
        for name in names:
            assert connection.extract_statements(engines.sql(name, folder)), name
