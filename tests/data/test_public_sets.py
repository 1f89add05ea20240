"""Readers of the published research sets, on tiny files in the same formats: what is read, and what is refused."""

import gzip
import json
import zipfile

import numpy as np
import pytest

from data import ingest, schema
from data.context import RunContext
from data.errors import BadDataError, UsageError
from data.parts import EVENT_PARTS
from data.schema import EVENT_TYPES, MICROS_PER_DAY
from data.sources import texts
from data.sources.published import TEST_FROM, VALID_FROM
from data.sources.splits import SETS, load_split
from tests.fixtures import public_sets

SOURCES = {name: module.__name__.rpartition(".")[2] for name, (module, _) in SETS.items()}
AMAZON = [name for name in SETS if name.startswith("amazon")]


def config(name, root):
    source, (_, options) = SOURCES[name], SETS[name]
    return ingest.Config.model_validate({"source": source, source: {"root": root, **options}})


@pytest.fixture
def read(tmp_path, store, make_ref):
    def run(name, key="test", threads=2):
        chosen = config(name, public_sets.write(name, tmp_path))
        return make_ref(store, "events", lambda out: ingest.run(chosen, {}, out, RunContext(threads=threads)), key)

    return run


def by_user(split, part):
    return {
        user: [split.item_ids[item] for item in part.of(number)] for number, user in enumerate(split.user_ids)
    }  # fmt: skip


def test_gowalla_keeps_its_three_parts_as_sets(tmp_path):
    split = load_split("gowalla", public_sets.write("gowalla", tmp_path))
    assert (split.num_users, split.num_items, split.time_kind) == (3, 7, "none")
    assert by_user(split, split.train) == {"0": ["1", "3", "5"], "1": ["2", "4"], "2": ["0", "1"]}
    assert by_user(split, split.valid) == {"0": ["0"], "1": ["5"], "2": []}
    assert by_user(split, split.test) == {"0": ["2", "6"], "1": ["0"], "2": ["3", "5"]}


@pytest.mark.parametrize("name", AMAZON)
def test_the_last_of_a_sequence_is_test_the_one_before_valid_and_order_is_kept(tmp_path, name):
    split = load_split(name, public_sets.write(name, tmp_path))
    shift = 1 if public_sets.FOLDERS[name] == "amazon-s3rec" else 0
    expected = {"0": ([3, 1], 2, 0), "1": ([2], 0, 3), "2": ([1, 3, 0], 2, 4)}
    for user, (train, valid, test) in expected.items():
        shifted = str(int(user) + shift)
        assert by_user(split, split.train)[shifted] == [str(item + shift) for item in train]
        assert by_user(split, split.valid)[shifted] == [str(valid + shift)]
        assert by_user(split, split.test)[shifted] == [str(test + shift)]
    assert (split.num_users, split.num_items, split.time_kind) == (3, 5, "order")
    assert set(split.test.ts) == {TEST_FROM}
    assert set(split.valid.ts) == {VALID_FROM}
    longest = split.train.ts[split.train.offsets[2] : split.train.offsets[3]]
    assert longest.tolist() == [VALID_FROM - days * MICROS_PER_DAY for days in (3, 2, 1)]


def test_s3rec_items_carry_each_category_id_once(tmp_path):
    split = load_split("amazon-beauty", public_sets.write("amazon-beauty", tmp_path))
    assert split.items["product_id"].to_pylist() == list(split.item_ids)
    assert split.items["attributes"][1].as_py() == [("category 2", "yes"), ("category 20", "yes")]


def test_scientific_has_text_brands_and_category_paths(read, tmp_path):
    products = {row["product_id"]: row for row in read("amazon-scientific").table("products.parquet").to_pylist()}
    assert products["0"]["title"] == "Steel bolt"
    assert products["0"]["category"] == ["Industrial", "Fasteners", "Bolts"]
    assert products["1"]["category"] == ["Industrial", "Hydraulics, Pneumatics & Plumbing", "Pumps"]
    assert (products["1"]["advertiser_id"], products["1"]["description"]) == ("Flow & Co", None)
    assert (products["2"]["advertiser_id"], products["2"]["category"]) == (None, None)
    split = load_split("amazon-scientific", tmp_path / "amazon-scientific")
    assert split.items["title"].to_pylist() == [products[item]["title"] for item in split.item_ids]


def test_a_brand_is_an_advertiser_of_its_products_and_events(read):
    ref = read("amazon-scientific")
    advertisers = ref.table("advertisers.parquet").to_pylist()
    assert [(row["advertiser_id"], row["name"]) for row in advertisers] == [("Acme", "Acme"), ("Flow & Co",) * 2]
    owner = {row["product_id"]: row["advertiser_id"] for row in ref.table("products.parquet").to_pylist()}
    events = ref.table(EVENT_PARTS).to_pylist()
    assert all(row["advertiser_id"] == owner[row["product_id"]] for row in events)


def test_retailrocket_keeps_behaviours_and_times_and_puts_what_was_held_out_after_them(tmp_path):
    split = load_split("retailrocket", public_sets.write("retailrocket", tmp_path))
    assert split.time_kind == "clock"
    assert by_user(split, split.train) == {"0": ["7", "7"], "1": ["6", "6", "0"]}
    kinds = [EVENT_TYPES[code] for code in split.train.event_types]
    assert kinds == ["view", "purchase", "view", "cart", "purchase"]
    assert split.train.ts[0] == 1430700000 * 1_000_000
    assert by_user(split, split.test) == {"0": ["4"], "1": ["7"]}
    assert len(split.valid.items) == 0
    midnight = split.test.ts[0]
    assert set(split.test.ts) == {midnight}
    assert midnight % MICROS_PER_DAY == 0
    assert 0 < midnight - split.train.ts.max() <= MICROS_PER_DAY


def test_movielens_keeps_every_rating_and_reads_stars_as_interest(read):
    ref = read("movielens-100k")
    rows = {(row["user_id"], row["product_id"]): row for row in ref.table(EVENT_PARTS).to_pylist()}
    found = {pair: (row["event_type"], row["value"]) for pair, row in rows.items()}
    assert found == {
        ("196", "242"): ("view", 3.0), ("186", "302"): ("interested", 5.0),
        ("22", "242"): ("not_interested", 1.0), ("22", "1"): ("interested", 4.0),
    }  # fmt: skip
    assert rows["22", "1"]["ts"] == 878887117 * 1_000_000
    film = ref.table("products.parquet").to_pylist()[0]
    assert (film["title"], film["category"]) == ("Toy Story", ["Animation", "Children's", "Comedy"])
    assert ("year", "1995") in film["attributes"]
    person = ref.table("users.parquet").to_pylist()[0]
    assert person["attributes"] == [("age", "39"), ("gender", "F"), ("occupation", "executive")]
    assert not ref.has("split.parquet")


def test_movielens_is_the_same_from_the_wheel_its_folder_and_its_files(tmp_path):
    files = public_sets.write("movielens-100k", tmp_path)
    packed = public_sets.wheel(files)
    places = [files, packed, packed.parent]
    assert len({tuple(ingest.source_identity(config("movielens-100k", place))) for place in places}) == 1
    assert len({str(load_split("movielens-100k", place).checksums()) for place in places}) == 1


def test_stars_that_mean_both_are_refused(tmp_path):
    with pytest.raises(ValueError, match="not_interested_to below interested_from"):
        SETS["movielens-100k"][0].Settings(root=tmp_path, interested_from=2, not_interested_to=2)


@pytest.mark.parametrize("name", SETS)
def test_the_contracts_tables_hold_the_rows_of_the_split(read, tmp_path, name):
    ref = read(name)
    split = load_split(name, tmp_path / public_sets.FOLDERS[name])
    events = {row["event_id"]: row for row in ref.table(EVENT_PARTS).to_pylist()}
    expected = sum(len(getattr(split, part).items) for part in ("train", "valid", "test"))
    assert len(events) == expected == ref.rows(EVENT_PARTS)
    assert ref.metrics["time_kind"] == split.time_kind
    assert {row["source"] for row in events.values()} == {split.name} == {ref.metrics["name"]}
    assert set(ref.table("products.parquet")["product_id"].to_pylist()) == set(split.item_ids)
    assert set(ref.table("users.parquet")["user_id"].to_pylist()) == set(split.user_ids)
    if not ref.has("split.parquet"):
        return
    parts = ref.table("split.parquet")
    assert parts.schema == schema.SPLIT
    for part in ("train", "valid", "test"):
        rows = [row for row in parts.to_pylist() if row["part"] == part]
        pairs = sorted((events[row["event_id"]]["user_id"], events[row["event_id"]]["product_id"]) for row in rows)
        mine = getattr(split, part)
        user = np.repeat(np.arange(split.num_users), np.diff(mine.offsets))
        assert pairs == sorted((split.user_ids[u], split.item_ids[i]) for u, i in zip(user, mine.items, strict=True))
        assert all((row["user_id"], row["product_id"]) in pairs for row in rows)
        assert ref.metrics["parts"].get(part, {"rows": 0})["rows"] == len(rows)


@pytest.mark.parametrize("name", SETS)
def test_time_separates_the_parts(read, name):
    ref = read(name)
    if not ref.has("split.parquet"):
        return
    part = {row["event_id"]: row["part"] for row in ref.table("split.parquet").to_pylist()}
    parts = ref.metrics["parts"]
    end = np.iinfo(np.int64).max
    test_from = parts["test"]["first_ts"]
    valid_from = parts.get("valid", {"first_ts": test_from})["first_ts"]
    spans = {"train": (0, valid_from), "valid": (valid_from, test_from), "test": (test_from, end)}
    for row in ref.table(EVENT_PARTS).to_pylist():
        first, last = spans[part[row["event_id"]]]
        assert first <= row["ts"] < last


@pytest.mark.parametrize("name", ["gowalla", "retailrocket", "movielens-100k"])
def test_rows_in_another_order_and_other_threads_change_no_byte(read, make_ref, store, tmp_path, name):
    first = read(name)
    folder = tmp_path / public_sets.FOLDERS[name]
    for path in folder.iterdir():
        packed = path.suffix == ".gz"
        lines = (gzip.decompress(path.read_bytes()) if packed else path.read_bytes()).splitlines(keepends=True)
        head = 0 if name == "gowalla" else 1
        turned = b"".join(lines[:head] + lines[head:][::-1])
        path.write_bytes(gzip.compress(turned) if packed else turned)
    chosen = config(name, folder)
    second = make_ref(store, "events", lambda o: ingest.run(chosen, {}, o, RunContext(threads=1)), "turned")
    assert first.manifest["files"] == second.manifest["files"]


def test_identity_follows_the_content_of_the_files_only(tmp_path):
    one = public_sets.write("gowalla", tmp_path / "one")
    two = public_sets.write("gowalla", tmp_path / "elsewhere" / "two")
    (two / "test.txt.gz").write_bytes(gzip.compress((two / "test.txt").read_bytes()))
    (two / "test.txt").unlink()
    assert ingest.source_identity(config("gowalla", one)) == ingest.source_identity(config("gowalla", two))
    assert config("gowalla", one).result_fields() == config("gowalla", two).result_fields()
    (two / "test.txt.gz").write_bytes(gzip.compress(b"0 6\n"))
    assert ingest.source_identity(config("gowalla", one)) != ingest.source_identity(config("gowalla", two))


def test_checksums_change_with_any_item_and_with_any_place(tmp_path):
    folder = public_sets.write("amazon-instruments", tmp_path)
    base = load_split("amazon-instruments", folder).checksums()
    path = folder / "Instruments.inter.json.gz"
    sequences = json.loads(gzip.decompress(path.read_bytes()))
    for changed, parts in (([1, 3, 2, 0], {"train"}), ([3, 1, 0, 2], {"valid", "test"})):
        path.write_bytes(gzip.compress(json.dumps({**sequences, "0": changed}).encode()))
        found = load_split("amazon-instruments", folder).checksums()
        assert {part for part in base if base[part] != found[part]} == parts


def test_an_unknown_set_is_refused_with_the_nearest_name(tmp_path):
    with pytest.raises(UsageError, match="did you mean 'amazon-beauty'"):
        load_split("amazon-beuty", tmp_path)


@pytest.mark.parametrize("name", SETS)
def test_a_missing_file_is_named(tmp_path, name):
    with pytest.raises(BadDataError, match=r"expected the set's file .* found none: correct `root`"):
        load_split(name, tmp_path)


BROKEN = {
    "a number is text": ("gowalla", "test.txt", "0 6 two\n", "product_id: expected whole numbers .* got two"),
    "a leading zero": ("gowalla", "test.txt", "0 06\n", "got 06"),
    "a pair in two parts": ("gowalla", "test.txt", "0 5\n", "in one part of the split only"),
    "a pair twice": ("gowalla", "test.txt", "0 6 6\n", "every interaction once"),
    "a user twice": ("gowalla", "test.txt", "0 6\n0 2\n", "test.txt, line 2: expected one line a user"),
    "an empty line": ("gowalla", "test.txt", "0 6\n\n", "line 2: expected one line a user"),
    "a short sequence": ("amazon-instruments", "Instruments.inter.json", '{"0": [1, 2]}', "at least 3 products"),
    "no sequence": ("amazon-instruments", "Instruments.inter.json", '{"0": 7}', "expected a list of at least 3"),
    "no object": ("amazon-instruments", "Instruments.inter.json", "[1]", "expected a JSON object, got list"),
    "no JSON": ("amazon-instruments", "Instruments.inter.json", "{", "expected JSON"),
    "nothing": ("amazon-instruments", "Instruments.inter.json", "{}", "expected interactions, got none"),
    "no title": ("amazon-scientific", "Scientific.item.json", '{"0": {"brand": "x"}}', "item 0: expected texts title"),
    "no list": ("amazon-beauty", "Beauty_item2attributes.json", '{"1": 4}', "item 1: expected a list"),
    "another event": ("retailrocket", "events.csv", "timestamp,user_id,item_id,event\n1430623510,1,6,seen\n", "seen"),
    "no time": (
        "retailrocket",
        "events.csv",
        "timestamp,user_id,item_id,event\n1430623510,1,6,view\n,1,6,cart\n",
        "between 1971 and 2200, got None",
    ),
    "milliseconds": (
        "retailrocket",
        "events.csv",
        "timestamp,user_id,item_id,event\n1430623510000,1,6,view\n",
        "between 1971 and 2200, got 1430623510000",
    ),
    "a time that overflows": (
        "retailrocket",
        "events.csv",
        "timestamp,user_id,item_id,event\n9223372036854775807,1,6,view\n",
        "got 9223372036854775807",
    ),
    "six stars": (
        "movielens-100k",
        "ml-100k.inter",
        "user_id:token\titem_id:token\trating:float\ttimestamp:float\n1\t1\t6\t881250949\n",
        "ratings of 1 to 5 stars",
    ),
    "no stars": (
        "movielens-100k",
        "ml-100k.inter",
        "user_id:token\titem_id:token\trating:float\ttimestamp:float\n1\t1\t\t881250949\n",
        "ratings of 1 to 5 stars",
    ),
    "a described item without a number": ("amazon-beauty", "Beauty_item2attributes.json", '{"x": [4]}', "got x"),
    "a time as text": ("retailrocket", "events.csv", "timestamp,user_id,item_id,event\nnow,1,6,view\n", "events.csv"),
    "no column": ("retailrocket", "test.csv", "user,item_id\n0,4\n", "expected columns user_id, item_id"),
    "a film twice": (
        "movielens-100k",
        "ml-100k.item",
        "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n1\tA\t1\tB\n1\tC\t1\tD\n",
        "every product described once",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_other_files_than_the_published_are_refused_with_what_is_wrong(tmp_path, case):
    name, file, text, words = BROKEN[case]
    folder = public_sets.write(name, tmp_path)
    (folder / f"{file}.gz").unlink(missing_ok=True)
    (folder / file).write_text(text)
    with pytest.raises(BadDataError, match=words):
        load_split(name, folder)


def test_bytes_that_are_no_text_no_gzip_or_too_much_are_refused(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_bytes(b"1 \xff")
    with pytest.raises(BadDataError, match="expected UTF-8 text, got byte 2"):
        texts.read(tmp_path, "a.txt")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"1 2 3" * 1000)[:-9])
    with pytest.raises(BadDataError, match="cannot be read"):
        texts.read(tmp_path, "b.txt")
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"0" * 5000))
    monkeypatch.setattr(texts, "LIMIT", 4096)
    with pytest.raises(BadDataError, match="at most 4,096 bytes"):
        texts.read(tmp_path, "c.txt")


def test_a_zip_that_is_none_or_lacks_the_file_is_refused(tmp_path):
    (tmp_path / "no.whl").write_bytes(b"PK nothing")
    with pytest.raises(BadDataError, match="cannot be read"):
        texts.read(tmp_path / "no.whl", "ml-100k.inter")
    with zipfile.ZipFile(tmp_path / "other.whl", "w") as packed:
        packed.writestr("a/readme", "")
    with pytest.raises(BadDataError, match=r"expected one file ml-100k\.inter in it, found 0"):
        texts.read(tmp_path / "other.whl", "ml-100k.inter")


def test_a_source_without_its_section_or_of_no_such_name_is_refused():
    with pytest.raises(ValueError, match=r"source 'gowalla' needs a section \[events.gowalla\]"):
        ingest.Config(source="gowalla")
    with pytest.raises(ValueError, match="no source 'gowala': did you mean 'gowalla'"):
        ingest.Config(source="gowala")
