"""Every kind of bad input: found before work starts, or set aside with file, row and column."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from data import ingest, quality
from data.context import RunContext
from data.errors import BadDataError
from data.parts import EVENT_PARTS
from data.sources import cells, files

EVENTS = """id,who,item,kind,when,paid
e1,u1,p1,shown,1700000000000,
e2,u1,p1,bought,1700000300000,2.5
e3,u2,p2,shown,1700000400000,
e4,u2,p2,bought,1700000500000,4
"""
PRODUCTS = """sku,brand,name,path
p1,a1,Green Tea,Drinks > Tea
p2,a2,Rye Loaf,Bakery > Bread
"""
MAPPING = {
    "name": "tiny",
    "events": {
        "paths": ["events.csv"],
        "time_unit": "ms",
        "event_types": {"shown": "impression", "bought": "purchase"},
        "columns": {
            "event_id": "id", "user_id": "who", "product_id": "item", "event_type": "kind", "ts": "when",
            "value": "paid",
        },
    },
    "products": {
        "paths": ["products.csv"],
        "columns": {"product_id": "sku", "advertiser_id": "brand", "title": "name", "category": "path"},
    },
}  # fmt: skip


@pytest.fixture
def shop(tmp_path):
    """A function that writes the two files, with changes, and returns the configuration that reads them."""

    def write(events=EVENTS, products=PRODUCTS, max_bad=0.0, **changes):
        for name, content in (("events.csv", events), ("products.csv", products)):
            if content is not None:
                (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        mapping = json.loads(json.dumps(MAPPING))
        for place, value in changes.items():
            table, _, key = place.partition("__")
            mapping[table][key] = value
        return ingest.Config(source="files", files={"root": str(tmp_path), **mapping}, max_bad=max_bad)

    return write


@pytest.fixture
def read(store, make_ref):
    """Ingest a configuration and return the artifact."""

    def run(config, key="test"):
        return make_ref(store, "events", lambda out: ingest.run(config, {}, out, RunContext(threads=1)), key)

    return run


def quarantine(ref):
    rows = ref.table("quarantine.parquet").to_pylist()
    return [(row["file"], row["row"], row["column"], row["rule"], row["value"]) for row in rows]


def test_good_files_become_the_contracts_tables_with_nothing_set_aside(shop, read):
    ref = read(shop())
    events = ref.table(EVENT_PARTS).to_pylist()
    assert [row["event_id"] for row in events] == ["e1", "e2", "e3", "e4"]
    assert events[1] == {
        "event_id": "e2", "user_id": "u1", "product_id": "p1", "advertiser_id": "a1", "campaign_id": None,
        "event_type": "purchase", "ts": 1_700_000_300_000_000, "known_at": 1_700_000_300_000_000, "value": 2.5,
        "surface": None, "position": None, "request_id": None, "sample_prob": 1.0, "propensity": None, "source": "tiny",
    }  # fmt: skip
    product = ref.table("products.parquet").to_pylist()[0]
    assert product["category"] == ["Drinks", "Tea"]
    assert product["known_at"] == product["first_seen"] == 1_700_000_000_000_000, "no dates: known from the log's start"
    assert [row["advertiser_id"] for row in ref.table("advertisers.parquet").to_pylist()] == ["a1", "a2"]
    assert [(row["user_id"], row["known_at"]) for row in ref.table("users.parquet").to_pylist()] == [
        ("u1", 1_700_000_000_000_001),
        ("u2", 1_700_000_400_000_001),
    ]
    assert ref.json("summary.json")["counts"] == {"impression": 2, "purchase": 2}
    assert quarantine(ref) == []


BAD_ROWS = {
    "a null user": ("e5,,p1,shown,1700000600000,", "who", ("user_id", "null", None)),
    "a null time": ("e5,u1,p1,shown,,", "when", ("ts", "null", None)),
    "a null event type": ("e5,u1,p1,,1700000600000,", "kind", ("event_type", "null", None)),
    "nothing acted upon": ("e5,u1,,shown,1700000600000,", "item", ("product_id", "no_target", None)),
    "an unknown product": ("e5,u1,p9,shown,1700000600000,", "item", ("product_id", "unknown_product", "p9")),
    "an unknown event type": ("e5,u1,p1,liked,1700000600000,", "kind", ("event_type", "unknown_event_type", "liked")),
    "text for a time": ("e5,u1,p1,shown,soon,", "when", ("ts", "not_a_time", "soon")),
    "a time out of range": ("e5,u1,p1,shown,1700000600,", "when", ("ts", "time_out_of_range", "1700000600")),
    "text for a number": ("e5,u1,p1,bought,1700000600000,free", "paid", ("value", "not_a_number", "free")),
    "NaN": ("e5,u1,p1,bought,1700000600000,nan", "paid", ("value", "nan", "nan")),
    "a negative value": ("e5,u1,p1,bought,1700000600000,-2", "paid", ("value", "too_small", "-2")),
    "an infinite value": ("e5,u1,p1,bought,1700000600000,inf", "paid", ("value", "too_large", "inf")),
    "the same id with other content": (
        "e4,u9,p2,bought,1700000500001,4",
        "id",
        ("event_id", "conflicting_duplicate", "e4"),
    ),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_bad_row_is_set_aside_by_file_row_and_column_and_the_rest_is_kept(shop, read, name):
    line, _, (column, rule, value) = BAD_ROWS[name]
    ref = read(shop(EVENTS + line + "\n", max_bad=0.5))
    assert quarantine(ref) == [("events.csv", 5, column, rule, value)]
    assert ref.table(EVENT_PARTS).num_rows == 4
    assert ref.metrics["quarantined"] == {f"events: {rule}": 1}


def test_too_many_bad_rows_stop_the_run_with_rules_rows_and_remedy_on_one_screen(shop, read):
    lines = "".join(f"x{i},u1,p{i},shown,1700000600000,\n" for i in range(7, 15))
    with pytest.raises(BadDataError) as caught:
        read(shop(EVENTS + lines, max_bad=0.1))
    text = str(caught.value)
    assert "events: 8 of 12 rows break a rule (66.67%); 10.00% may." in text
    assert "unknown_product: 8" in text
    assert "events.csv:5:product_id: unknown_product 'p7'" in text
    assert "--max-bad 1.0" in text
    assert text.count("events.csv:") == 5
    assert len(text.splitlines()) < 15
    assert caught.value.exit_code == 3


def test_a_row_with_two_faults_counts_once_against_the_limit(shop, read):
    ref = read(shop(EVENTS + "e5,,p9,shown,1700000600000,\n", max_bad=0.2))
    assert [found[3] for found in quarantine(ref)] == ["unknown_product", "null"]


def test_equal_duplicates_are_dropped_counted_and_not_called_bad(shop, read):
    again = "".join(EVENTS.splitlines(keepends=True)[1:])
    ref = read(shop(EVENTS + again, PRODUCTS + "p1,a1,Green Tea,Drinks > Tea\n"))
    assert ref.table(EVENT_PARTS).num_rows == 4
    assert ref.table("products.parquet").num_rows == 2
    assert ref.metrics["equal_duplicates"] == {"products": 1, "events": 4}
    assert quarantine(ref) == []


@pytest.mark.parametrize("turned", [False, True])
def test_of_conflicting_products_the_first_by_content_is_kept_whatever_the_row_order(shop, read, turned):
    rival = "p1,a1,Aged Tea,Drinks > Tea\n"
    header, first, second = PRODUCTS.splitlines(keepends=True)
    ref = read(shop(products=header + (rival + first if turned else first + rival) + second, max_bad=0.5))
    assert ref.table("products.parquet")["title"].to_pylist() == ["Aged Tea", "Rye Loaf"]
    assert [(row[2], row[3], row[4]) for row in quarantine(ref)] == [("product_id", "conflicting_duplicate", "p1")]


def test_events_of_a_product_that_was_set_aside_are_unknown_too(shop, read):
    with_price = {"products__columns": {**MAPPING["products"]["columns"], "price": "cost"}}
    products = "sku,brand,name,path,cost\np1,a1,Tea,Drinks,-1\np2,a2,Loaf,Bakery,2\n"
    ref = read(shop(products=products, max_bad=0.5, **with_price))
    assert [row[3] for row in quarantine(ref)] == ["unknown_product", "unknown_product", "too_small"]


STRUCTURAL = {
    "a missing column": ({"events": EVENTS.replace("paid", "payed", 1)}, "'paid': did you mean 'payed'?"),
    "no rows": ({"products": PRODUCTS.splitlines()[0] + "\n"}, "products: expected rows, got none"),
    "an empty file": ({"events": ""}, "events.csv"),
    "a missing file": ({"events__paths": ["event.csv"]}, "did you mean 'events.csv'?"),
    "numbers that are text": (
        {"events": EVENTS.replace("2.5", "x").replace(",4\n", ",y\n")},
        "events.value: expected numbers",
    ),
    "milliseconds read as seconds": ({"events__time_unit": "s"}, 'they fit time_unit = "ms"'),
    "milliseconds read as microseconds": ({"events__time_unit": "us"}, 'they fit time_unit = "ms"'),
    "milliseconds read as ISO text": ({"events__time_unit": "iso"}, 'they fit time_unit = "ms"'),
    "text as milliseconds": ({"events": EVENTS.replace("1700000", "on day ")}, "they fit no unit"),
    "an unknown suffix": ({"events__paths": ["events.xlsx"]}, "expected .parquet, .csv, .tsv or .jsonl"),
    "a row with too few cells": ({"events": EVENTS + "e5,u1\n"}, "Row #6: Expected 6 columns, got 2: e5,u1"),
    "another delimiter": ({"events": EVENTS.replace(",", ";")}, "'id': known: id;who;item;kind;when;paid"),
    "a torn Parquet file": ({"events__paths": ["events.parquet"]}, "events.parquet cannot be read"),
    "a torn JSON file": ({"events__paths": ["events.jsonl"]}, "events.jsonl cannot be read"),
    "an unclosed quote": ({"events": EVENTS + 'e5,"u1,p1,shown,1700000600000,\n' * 3}, "events.csv"),
}


@pytest.mark.parametrize("name", STRUCTURAL)
def test_a_file_that_is_wrong_as_a_whole_is_refused_with_the_remedy(shop, read, store, tmp_path, name):
    changes, expected = STRUCTURAL[name]
    for suffix in ("xlsx", "parquet", "jsonl"):
        (tmp_path / f"events.{suffix}").write_bytes(b'{"id": ')
    with pytest.raises(BadDataError) as caught:
        read(shop(**changes))
    assert expected in str(caught.value)
    assert store.find("events", "test") is None


@pytest.mark.parametrize("content", [b"\xe9", b"\xff\xfe"])
def test_text_that_is_not_utf8_is_refused_by_line_and_byte(shop, read, content):
    events = EVENTS.encode().replace(b"e2", b"e" + content)
    with pytest.raises(
        BadDataError, match=f"events.csv, line 3, byte {events.index(content)}: expected UTF-8"
    ) as caught:
        read(shop(events))
    assert "iconv -f latin1 -t utf-8" in str(caught.value)


@pytest.mark.parametrize("cut", [1, 2])
def test_utf8_is_followed_across_chunk_borders(tmp_path, monkeypatch, cut):
    monkeypatch.setattr(quality, "_CHUNK", 4)
    path = tmp_path / "names.csv"
    path.write_bytes("é€😀\nüü\n".encode() * 3)
    quality.check_text(path)
    path.write_bytes("é€😀\nüü\n".encode() * 3 + "€".encode()[:cut])
    with pytest.raises(BadDataError, match="line 7, byte 45"):
        quality.check_text(path)


def test_compressed_text_is_checked_and_read(shop, read, tmp_path):
    (tmp_path / "events.csv.gz").write_bytes(gzip.compress(EVENTS.encode()))
    assert read(shop(events__paths=["events.csv.gz"])).table(EVENT_PARTS).num_rows == 4
    (tmp_path / "events.csv.gz").write_bytes(gzip.compress(EVENTS.encode() + b"\xe9"))
    with pytest.raises(BadDataError, match=r"events\.csv\.gz, line 6"):
        read(shop(events__paths=["events.csv.gz"]), "second")


def test_json_lines_and_parquet_give_the_same_tables_as_csv(shop, read, tmp_path):
    def records(text):
        header, *rows = [line.split(",") for line in text.splitlines()]
        return [{name: cell or None for name, cell in zip(header, row, strict=True)} for row in rows]

    events, products = records(EVENTS), records(PRODUCTS)
    for row in products:
        row["path"] = row["path"].split(" > ")
    for row in events:
        row["when"], row["paid"] = int(row["when"]), row["paid"] and float(row["paid"])
    for name, rows in (("events", events), ("products", products)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{name}.parquet")
    refs = [
        read(shop(events__paths=[f"events.{kind}"], products__paths=[f"products.{kind}"]), kind)
        for kind in ("csv", "jsonl", "parquet")
    ]
    digests = [
        {name: listed["sha256"] for name, listed in ref.manifest["files"].items() if name != "files.json"}
        for ref in refs
    ]
    assert digests[0] == digests[1] == digests[2]


def test_iso_times_with_and_without_zone_are_utc(shop, read):
    times = ["2023-11-14T22:13:20Z", "2023-11-14 22:13:20", "2023-11-15T00:13:20+02:00", "2023-11-14T22:13:20.000001Z"]
    rows = "".join(f"e{i},u1,p1,shown,{time},\n" for i, time in enumerate(times))
    ref = read(shop(EVENTS.splitlines()[0] + "\n" + rows, events__time_unit="iso"))
    assert ref.table(EVENT_PARTS)["ts"].to_pylist() == [1_700_000_000_000_000] * 3 + [1_700_000_000_000_001]


def test_numbered_events_make_a_log_that_says_its_time_is_an_order(shop, read):
    rows = "".join(f"e{i},u1,p1,shown,{i},\n" for i in range(3))
    ref = read(shop(EVENTS.splitlines()[0] + "\n" + rows, events__time_unit="order"))
    assert ref.json("summary.json")["time_kind"] == "order"
    first, second, third = ref.table(EVENT_PARTS)["ts"].to_pylist()
    assert second - first == third - second == 1_000_000


def test_without_ids_an_event_is_identified_by_who_did_what_when_and_where(shop, read):
    columns = {name: theirs for name, theirs in MAPPING["events"]["columns"].items() if name != "event_id"}
    twice = EVENTS + "e5,u1,p1,bought,1700000300000,2.5\n"
    ids = read(shop(twice, events__columns=columns)).table(EVENT_PARTS)["event_id"].to_pylist()
    assert len(ids) == len(set(ids)) == 4, "the repeated purchase is the same event"
    turned = "\n".join([EVENTS.splitlines()[0], *reversed(EVENTS.splitlines()[1:])]) + "\n"
    assert read(shop(turned, events__columns=columns), "turned").table(EVENT_PARTS)["event_id"].to_pylist() == ids


def test_levels_in_several_columns_and_defaults_are_understood(shop, read):
    products = "sku,brand,name,one,two\np1,a1,Tea,Drinks,Tea\np2,a2,Loaf,Bakery,\n"
    columns = {"product_id": "sku", "advertiser_id": "brand", "category": ["one", "two"]}
    ref = read(shop(products=products, products__columns=columns, products__defaults={"title": "untitled", "price": 3}))
    rows = ref.table("products.parquet").to_pylist()
    assert [row["category"] for row in rows] == [["Drinks", "Tea"], ["Bakery"]]
    assert [(row["title"], row["price"]) for row in rows] == [("untitled", 3.0)] * 2


def test_without_levels_a_product_has_no_category(shop, read):
    ref = read(shop(products="sku,brand,name,path\np1,a1,Tea,\np2,a2,Loaf, > \n"))
    assert ref.table("products.parquet")["category"].to_pylist() == [None, None]


@pytest.mark.parametrize(("suffix", "sign", "delimiter"), [("csv", ";", ";"), ("tsv", "\t", None)])
def test_cells_may_be_separated_by_other_signs(shop, read, tmp_path, suffix, sign, delimiter):
    (tmp_path / f"log.{suffix}").write_text(EVENTS.replace(",", sign))
    ref = read(shop(events__paths=[f"log.{suffix}"], events__delimiter=delimiter))
    assert ref.table(EVENT_PARTS).num_rows == 4


def test_quotes_line_breaks_marks_and_byte_order_marks_are_read_as_written(shop, read):
    name = '"Tea ""No 1"", fine\nleaves"'
    products = f"\ufeffsku,brand,name,path\r\np1,#a,{name},Drinks\r\n\r\np2,a2,NA,Bakery\r\n"
    rows = read(shop(products=products)).table("products.parquet").to_pylist()
    assert [row["title"] for row in rows] == ['Tea "No 1", fine\nleaves', "NA"]
    assert rows[0]["advertiser_id"] == "#a"


def test_a_fault_deep_in_a_long_file_is_found_by_its_line(shop, read, monkeypatch):
    monkeypatch.setattr(cells, "_BLOCK", 256)
    rows = "".join(f"x{i},u1,p1,shown,1700000000000,\n" for i in range(50))
    with pytest.raises(BadDataError, match=r"events\.csv cannot be read.*Row #56: Expected 6 columns, got 3"):
        read(shop(EVENTS + rows + "x,y,z\n"))


def test_files_of_one_name_in_several_folders_are_told_apart(shop, read, tmp_path):
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    for folder, user in (("one", "u8"), ("two", "u9")):
        (outside / folder).mkdir(parents=True)
        line = f"x-{folder},{user},p1,shown,1700000000000,\nx-{folder},{user},p1,shown,1700000000000,\n"
        (outside / folder / "log[1].csv").write_text(EVENTS.splitlines()[0] + "\n" + line)
    ref = read(shop(events__paths=[str(outside / "*" / "log*.csv"), str(outside / "one" / "log[1].csv")]))
    assert ref.table(EVENT_PARTS)["user_id"].to_pylist() == ["u8", "u9"]
    assert ref.metrics["equal_duplicates"]["events"] == 2


def test_a_time_known_before_it_happened_is_known_when_it_happened(shop, read):
    columns = {**MAPPING["events"]["columns"], "known_at": "logged"}
    lines = EVENTS.splitlines()
    stamped = [lines[0] + ",logged"] + [f"{line},{1700000000000 + 10**6 * i}" for i, line in enumerate(lines[1:])]
    rows = read(shop("\n".join(stamped) + "\n", events__columns=columns)).table(EVENT_PARTS).to_pylist()
    assert [row["known_at"] - row["ts"] for row in rows] == [0, 700_000_000, 1_600_000_000, 2_500_000_000]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"events__columns": {"user": "who"}}, "events has no column 'user': did you mean 'user_id'?"),
        ({"events__columns": {"user_id": "who"}}, "expected an entry for 'event_type'"),
        ({"events__event_types": {"shown": "impresion"}}, "did you mean 'impression'?"),
        ({"events__time_unit": "minutes"}, "time_unit"),
    ],
)
def test_a_wrong_mapping_is_refused_with_the_nearest_name(shop, changes, expected):
    with pytest.raises(ValidationError) as caught:
        shop(**changes)
    assert expected in str(caught.value)


def test_own_files_need_their_section():
    with pytest.raises(ValidationError, match=r"needs a section \[events.files\]"):
        ingest.Config(source="files")


def test_paths_start_from_the_configuration_files_folder(tmp_path):
    own = {name: MAPPING[name] for name in ("events", "products")}
    assert files.Settings.model_validate(own, context={"root": tmp_path}).root == tmp_path
    assert str(files.Settings.model_validate(own).root) == "."


def test_identity_follows_content_not_names_and_settings_of_the_other_source_do_not_matter(shop, tmp_path):
    config = shop()
    before = ingest.source_identity(config)
    (tmp_path / "events.csv").rename(tmp_path / "renamed.csv")
    assert ingest.source_identity(shop(events=None, events__paths=["renamed.csv"])) == before
    assert ingest.source_identity(shop(EVENTS.replace("2.5", "2.6"))) != before
    other = config.model_copy(update={"completejourney": config.completejourney.model_copy(update={"households": 5})})
    assert other.result_fields() == config.result_fields()
    assert "max_bad" not in str(config.result_fields())
    assert "paths" not in str(config.result_fields())
