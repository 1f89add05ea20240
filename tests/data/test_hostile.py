"""Input that is broken on purpose or by accident: refused with a clear error, or set aside with a count."""

import decimal
import gzip
import json
import random
import resource
import sys
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data import ingest
from data.context import RunContext
from data.errors import BadDataError
from data.parts import EVENT_PARTS
from data.schema import to_micros
from data.sources import limits
from tests.data.test_quality import EVENTS, MAPPING, PRODUCTS

NOW = datetime(2023, 11, 20, tzinfo=UTC)


@pytest.fixture
def read(tmp_path, store, make_ref):
    """A function that ingests files written to the test's folder; their mapping can be changed."""

    def run(key="test", max_bad=0.5, now=None, clock=None, memory_limit="200MB", **changes):
        for name, content in (("events.csv", EVENTS), ("products.csv", PRODUCTS)):
            if not (tmp_path / name).exists():
                (tmp_path / name).write_text(content)
        mapping = json.loads(json.dumps(MAPPING))
        for place, value in changes.items():
            table, _, field = place.partition("__")
            mapping[table][field] = value
        config = ingest.Config(
            source="files",
            files={"root": str(tmp_path), **mapping},
            max_bad=max_bad,
            now=now,
            memory_limit=memory_limit,
        )
        return make_ref(store, "events", lambda out: ingest.run(config, {}, out, RunContext(now=clock)), key)

    return run


def rows(**columns):
    """The four good rows with columns replaced, as a list of Python records."""
    header, *lines = [line.split(",") for line in EVENTS.splitlines()]
    records = [{name: cell or None for name, cell in zip(header, line, strict=True)} for line in lines]
    for name, values in columns.items():
        for record, value in zip(records, values, strict=True):
            record[name] = value
    return records


def write(tmp_path, table, **options):
    pq.write_table(
        table if isinstance(table, pa.Table) else pa.Table.from_pylist(table), tmp_path / "e.parquet", **options
    )


def set_aside(ref):
    return [(row["column"], row["rule"], row["value"]) for row in ref.table("quarantine.parquet").to_pylist()]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("e5,u1,p1,shown,-5,", ("ts", "time_out_of_range", "-5")),
        ("e5,u1,p1,shown,1700000600,", ("ts", "time_out_of_range", "1700000600")),
        ("e5,u1,p1,shown,1700442000001,", ("ts", "after_now", "1700442000001")),
        ("e5,u1,p1,shown,99999999999999999999,", ("ts", "not_a_time", "99999999999999999999")),
        ("e5,u1,p1,bought,1700000600000,-1", ("value", "too_small", "-1")),
        ("e5,u\0x,p1,shown,1700000600000,", ("user_id", "holds_nul", "u\\0x")),
        ("e5," + "x" * 10_000 + ",p1,shown,1700000600000,", ("user_id", "too_long", "x" * 60 + "... (10000 bytes)")),
        ("y" * 1025 + ",u1,p1,shown,1700000600000,", ("event_id", "too_long", "y" * 60 + "... (1025 bytes)")),
    ],
)
def test_an_impossible_row_is_set_aside_and_counted(read, tmp_path, line, expected):
    (tmp_path / "events.csv").write_text(EVENTS + line + "\n")
    ref = read(clock=to_micros(NOW))
    assert set_aside(ref) == [expected]
    assert ref.metrics["quarantined"] == {f"events: {expected[1]}": 1}
    assert ref.rows(EVENT_PARTS) == 4


def test_a_clock_may_be_an_hour_fast_and_without_a_clock_nothing_is_too_new(read, tmp_path):
    (tmp_path / "events.csv").write_text(EVENTS + "e5,u1,p1,shown,1700442000000,\ne6,u1,p1,shown,4000000000000,\n")
    assert read("clocked", clock=to_micros(NOW)).rows(EVENT_PARTS) == 5
    assert read("set", clock=0, now=NOW).rows(EVENT_PARTS) == 5, "a set instant counts before the clock"
    assert read("none").rows(EVENT_PARTS) == 6


def test_what_is_known_only_after_now_cannot_be_known(read, tmp_path):
    lines = EVENTS.splitlines()
    times = ["", "", "", "1800000000000"]
    (tmp_path / "events.csv").write_text(
        "\n".join([lines[0] + ",seen"] + [f"{line},{seen}" for line, seen in zip(lines[1:], times, strict=True)]) + "\n"
    )
    ref = read(clock=to_micros(NOW), events__columns={**MAPPING["events"]["columns"], "known_at": "seen"})
    assert set_aside(ref) == [("known_at", "after_now", "1800000000000")]


def test_emoji_and_other_scripts_are_good_ids(read, tmp_path):
    (tmp_path / "events.csv").write_text(EVENTS.replace("u1", "🦊‍🔥").replace("e1", "سلام").replace("e2", "x" * 1024))
    ref = read()
    assert "🦊‍🔥" in ref.table("users.parquet")["user_id"].to_pylist()
    assert set_aside(ref) == []


def test_ids_of_different_types_are_apart_and_a_category_is_never_its_own_parent(read, tmp_path):
    """A person, a product and an advertiser may share an id: no relation of the log joins a type with itself."""
    (tmp_path / "events.csv").write_text(EVENTS.replace("u1", "p1"))
    (tmp_path / "products.csv").write_text(PRODUCTS.replace("a1", "p1").replace("Drinks > Tea", "Tea > Tea > Green"))
    ref = read()
    assert ref.rows(EVENT_PARTS) == 4
    assert ref.table("products.parquet")["category"].to_pylist()[0] == ["Tea", "Green"]
    assert ref.metrics["repeated_levels"] == 1


def test_a_corrupt_page_is_found_by_its_checksum(read, tmp_path):
    write(tmp_path, rows(), write_page_checksum=True, compression="none", use_dictionary=False)
    content = (tmp_path / "e.parquet").read_bytes()
    (tmp_path / "e.parquet").write_bytes(content.replace(b"1700000300000", b"1700000300009", 1))
    with pytest.raises(BadDataError, match=r"e\.parquet cannot be read.*(checksum|CRC)"):
        read(events__paths=["e.parquet"])


def test_a_truncated_file_is_refused(read, tmp_path):
    write(tmp_path, rows())
    content = (tmp_path / "e.parquet").read_bytes()
    for length in (0, 3, len(content) // 2, len(content) - 1):
        (tmp_path / "e.parquet").write_bytes(content[:length])
        with pytest.raises(BadDataError, match=r"e\.parquet cannot be read"):
            read(events__paths=["e.parquet"])
    packed = gzip.compress(EVENTS.encode())
    for length in (len(packed) // 2, len(packed) - 4):
        (tmp_path / "e.csv.gz").write_bytes(packed[:length])
        with pytest.raises(BadDataError, match=r"e\.csv\.gz cannot be read"):
            read(events__paths=["e.csv.gz"])


def test_damaged_bytes_anywhere_give_an_error_or_a_count_never_a_crash(read, tmp_path):
    write(tmp_path, rows(), write_page_checksum=True)
    content = (tmp_path / "e.parquet").read_bytes()
    draw = random.Random(0)
    refused = 0
    for attempt in range(25):
        damaged = bytearray(content)
        for _ in range(3):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        (tmp_path / "e.parquet").write_bytes(bytes(damaged))
        try:
            read(f"damaged{attempt}", events__paths=["e.parquet"])
        except BadDataError:
            refused += 1
    assert refused > 10


def _peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def test_a_file_that_declares_more_rows_than_its_size_allows_is_refused_before_decoding(read, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "FREE_BYTES", 1 << 16)
    write(tmp_path, pa.table({name: pa.array([None], pa.string()).take(pa.array([0] * 300_000)) for name in rows()[0]}))
    assert (tmp_path / "e.parquet").stat().st_size < 6000
    with pytest.raises(BadDataError, match=r"e\.parquet: .* bytes on disk, more than .* when unpacked"):
        read(events__paths=["e.parquet"])


def test_one_wide_value_repeated_is_refused_without_being_spread_out(read, tmp_path):
    """50,000 references to one value of 900 kB: 45 GB if decoded, 1 MB on disk."""
    wide = pa.DictionaryArray.from_arrays(pa.array([0] * 50_000, pa.int32()), pa.array(["x" * 900_000]))
    names = list(rows()[0])
    write(tmp_path, pa.table({name: wide if name == "who" else pa.array(["1"] * 50_000) for name in names}))
    assert (tmp_path / "e.parquet").stat().st_size < 2_000_000
    before = _peak_mb()
    with pytest.raises(BadDataError, match="when unpacked"):
        read(events__paths=["e.parquet"])
    assert _peak_mb() - before < 700


def test_a_cell_longer_than_a_megabyte_is_refused(read, tmp_path):
    write(tmp_path, rows(who=["u1", "u1", "u2", "x" * 1_100_000]))
    with pytest.raises(BadDataError, match="at most 1,048,576 bytes, got one of 1,100,000"):
        read(events__paths=["e.parquet"])


def test_a_gzip_bomb_is_refused_while_it_streams(read, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "FREE_BYTES", 1 << 20)
    line = b"e1,u1,p1,shown,1700000000000,\n"
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(EVENTS.encode() + line * 2_000_000))
    with pytest.raises(BadDataError, match=r"e\.csv\.gz: .* when unpacked"):
        read(events__paths=["e.csv.gz"])


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "csv.gz"])
def test_a_line_longer_than_is_read_at_once_is_refused(read, tmp_path, suffix):
    content = EVENTS.encode() + b"x" * (9 << 20) + b"\n"
    (tmp_path / f"e.{suffix}").write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    with pytest.raises(BadDataError, match="line 6: expected at most 8,388,608 bytes"):
        read(events__paths=[f"e.{suffix}"])


def test_of_thousands_of_columns_only_the_mapped_ones_are_read(read, tmp_path):
    extra = {f"c{index}": pa.array(["x"] * 4) for index in range(5000)}
    table = pa.table({name: pa.array([row[name] for row in rows()]) for name in rows()[0]} | extra)
    write(tmp_path, table)
    assert read(events__paths=["e.parquet"]).rows(EVENT_PARTS) == 4
    with pytest.raises(BadDataError, match="and 4,976 more") as caught:
        read("other", events__paths=["e.parquet"], events__columns={**MAPPING["events"]["columns"], "value": "cost"})
    assert len(str(caught.value)) < 1500


def test_a_file_without_columns_or_rows_is_refused(read, tmp_path):
    write(tmp_path, pa.table({}))
    with pytest.raises(BadDataError, match="The file has: no columns"):
        read(events__paths=["e.parquet"])
    write(tmp_path, pa.Table.from_pylist(rows()).slice(0, 0))
    with pytest.raises(BadDataError, match="expected rows, got none"):
        read(events__paths=["e.parquet"])
    (tmp_path / "e.csv").write_text("")
    with pytest.raises(BadDataError, match=r"e\.csv cannot be read"):
        read(events__paths=["e.csv"])


def test_a_mapped_column_that_is_there_twice_is_refused(read, tmp_path):
    table = pa.Table.from_pylist(rows())
    write(tmp_path, pa.table([*table.columns, table["who"]], names=[*table.column_names, "who"]))
    (tmp_path / "e.csv").write_text(EVENTS.replace("paid", "who", 1))
    for name in ("e.parquet", "e.csv"):
        with pytest.raises(BadDataError, match="expected one column 'who', got 2"):
            read(events__paths=[name])
    lines = [json.dumps(row)[:-1] + ', "who": "u9"}' for row in rows()]
    (tmp_path / "e.jsonl").write_text("\n".join(lines) + "\n")
    try:
        ref = read(events__paths=["e.jsonl"])
    except BadDataError:
        return
    assert set(ref.table(EVENT_PARTS)["user_id"].to_pylist()) <= {"u1", "u2", "u9"}


NESTED = {
    "a struct": [{"id": "u1"}, {"id": "u1"}, {"id": "u2"}, {"id": "u2"}],
    "a list": [["u1"], ["u1"], ["u2"], ["u2"]],
    "a list of structs": [[{"id": "u1"}]] * 4,
}


@pytest.mark.parametrize("name", NESTED)
def test_a_nested_value_where_a_single_one_is_expected_is_refused(read, tmp_path, name):
    write(tmp_path, rows(who=NESTED[name]))
    with pytest.raises(BadDataError, match=r"expected a single value in each cell of 'who' \(mapped to 'user_id'\)"):
        read(events__paths=["e.parquet"])


def test_decimals_timestamps_integers_and_bytes_are_read_as_what_they_say(read, tmp_path):
    moments = [datetime.fromtimestamp(int(row["when"]) / 1000, UTC) for row in rows()]
    typed = rows(
        when=moments,
        paid=[None, decimal.Decimal("2.50"), None, decimal.Decimal("4.00")],
        who=[b"u1", b"u1", b"u2", b"u2"],
    )
    plain = read("plain").table(EVENT_PARTS)
    for unit in ("ms", "us", "ns"):
        table = pa.Table.from_pylist(typed)
        index = table.column_names.index("when")
        table = table.set_column(index, "when", table["when"].cast(pa.timestamp(unit, tz="UTC")))
        write(tmp_path, table)
        ref = read(unit, events__paths=["e.parquet"], events__time_unit="iso")
        assert ref.table(EVENT_PARTS).equals(plain), unit
    numbered = pa.Table.from_pylist(rows(item=[1, 1, 2, 2]))
    write(tmp_path, numbered)
    (tmp_path / "products.csv").write_text(PRODUCTS.replace("p1", "1").replace("p2", "2"))
    assert read("numbers", events__paths=["e.parquet"]).table(EVENT_PARTS)["product_id"].to_pylist() == [
        "1",
        "1",
        "2",
        "2",
    ]


def test_text_in_parquet_that_is_not_utf8_is_refused(read, tmp_path):
    broken = pa.Array.from_buffers(pa.string(), 4, pa.array([b"u1", b"\xff\xfe", b"u2", b"u2"]).buffers())
    table = pa.Table.from_pylist(rows())
    write(tmp_path, table.set_column(table.column_names.index("who"), "who", broken))
    with pytest.raises(BadDataError, match=r"e\.parquet cannot be read"):
        read(events__paths=["e.parquet"])


@pytest.mark.parametrize("separator", ["", "\x1f", "\n"])
def test_one_person_with_very_many_events_is_read_like_any_other(read, tmp_path, separator):
    count = 100_000 if sys.platform == "linux" else 10_000
    table = pa.table(
        {
            "id": pa.array([f"e{separator}{index}" for index in range(count)]),
            "who": pa.array(["u1"] * count),
            "item": pa.array(["p1", "p2"] * (count // 2)),
            "kind": pa.array(["shown"] * count),
            "when": pa.array([1_700_000_000_000 + index // 7 for index in range(count)]),
            "paid": pa.nulls(count, pa.float64()),
        }
    )
    write(tmp_path, table)
    ref = read(events__paths=["e.parquet"])
    assert ref.rows(EVENT_PARTS) == count
    assert ref.table("users.parquet").num_rows == 1
