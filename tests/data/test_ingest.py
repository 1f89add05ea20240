"""Own files end to end: the synthetic shop comes back as it was, whatever the order of its rows."""

import random
import shutil
import tomllib
from pathlib import Path

import pyarrow as pa
import pytest

from data import ingest, parts, schema, synthetic
from data.artifacts import ArtifactRef
from data.context import RunContext
from data.errors import BadDataError, SystemStateError
from data.parts import EVENT_PARTS

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"


def shop_config(folder, **changes):
    mapping = tomllib.loads((FIXTURES / "shop.toml").read_text())["events"]
    return ingest.Config.model_validate({**mapping, **changes}, context={"root": folder})


@pytest.fixture
def read(store, make_ref):
    def run(config, key, threads=2):
        return make_ref(store, "events", lambda out: ingest.run(config, {}, out, RunContext(threads=threads)), key)

    return run


def tables(ref: ArtifactRef) -> dict[str, str]:
    """sha256 of every file but the one that says which files were read."""
    return {name: listed["sha256"] for name, listed in ref.manifest["files"].items() if name != "files.json"}


def _read(ref: ArtifactRef, name: str) -> pa.Table:
    return ref.table(EVENT_PARTS if name == "events" else f"{name}.parquet")


def test_a_world_written_as_a_foreign_shop_is_read_back_row_for_row(read, tmp_path, world):
    synthetic.write_csv(world, tmp_path)
    ref = read(shop_config(tmp_path), "shop")
    lost = {"events": ("position", "source"), "products": ("price",), "advertisers": (), "campaigns": (), "users": ()}
    for name, columns in lost.items():
        found, planted = _read(ref, name), world[name] if name != "events" else parts.in_order(world[name])
        assert found.schema == planted.schema, name
        assert found.drop_columns(list(columns)).equals(planted.drop_columns(list(columns))), name
    summary = ref.json("summary.json")
    assert summary["name"] == "shop"
    assert summary["time_kind"] == "clock"
    assert summary["rows"]["events"] == world["events"].num_rows
    assert (summary["first_ts"], summary["last_ts"]) == (
        world["events"]["ts"][0].as_py(),
        world["events"]["ts"][-1].as_py(),
    )


def test_row_order_file_split_and_threads_change_no_byte(read, tmp_path):
    for path in FIXTURES.glob("shop_*.csv"):
        shutil.copy(path, tmp_path)
    first = read(shop_config(tmp_path), "first")
    for path in tmp_path.glob("shop_*.csv"):
        header, *rows = path.read_text().splitlines(keepends=True)
        random.Random(path.name).shuffle(rows)
        if path.name == "shop_events.csv":
            path.unlink()
            (tmp_path / "shop_events_a.csv").write_text(header + "".join(rows[:1000]))
            (tmp_path / "shop_events_b.csv").write_text(header + "".join(rows[1000:]))
        else:
            path.write_text(header + "".join(rows))
    config = shop_config(tmp_path)
    events = config.files.events.model_copy(update={"paths": ("shop_events_*.csv",)})
    config = config.model_copy(update={"files": config.files.model_copy(update={"events": events})})
    second = read(config, "second", threads=1)
    assert tables(first) == tables(second)


def test_every_table_is_sorted_by_identity_and_has_its_schema(read):
    ref = read(shop_config(FIXTURES), "shop")
    identity = {"products": ["product_id"], "users": ["user_id"], "advertisers": ["advertiser_id"],
                "campaigns": ["campaign_id"], "events": ["day", "ts", "event_id"]}  # fmt: skip
    for name, columns in identity.items():
        table = _read(ref, name)
        assert table.schema == getattr(schema, name.upper())
        assert table.schema.metadata == getattr(schema, name.upper()).metadata
        seen = schema.visible_from(table["ts"].to_numpy(), table["known_at"].to_numpy()) if name == "events" else None
        table = table if seen is None else table.append_column("day", pa.array(parts.day_of(seen)))
        keys = list(zip(*(table[column].to_pylist() for column in columns), strict=True))
        assert keys == sorted(keys), name
    assert ref.table("quarantine.parquet").schema == schema.QUARANTINE


def test_tables_that_are_not_listed_are_derived_from_the_others(read, tmp_path):
    config = shop_config(FIXTURES)
    bare = config.files.model_copy(update={"advertisers": None, "users": None, "campaigns": None})
    full, derived = read(config, "full"), read(config.model_copy(update={"files": bare}), "bare")
    for name, column in (("advertisers", "advertiser_id"), ("users", "user_id"), ("campaigns", "campaign_id")):
        ids = derived.table(f"{name}.parquet")[column]
        assert ids.equals(full.table(f"{name}.parquet")[column]), name
    events = derived.table(EVENT_PARTS).to_pylist()
    known = {row["user_id"]: row["known_at"] for row in derived.table("users.parquet").to_pylist()}
    for user, at in known.items():
        assert at == min(max(row["ts"] + 1, row["known_at"]) for row in events if row["user_id"] == user)


def test_a_little_memory_is_enough(read, tmp_path, world):
    """60 MB for eight copies of the log, which take more: the rest spills to the work folder, which is cleared."""
    synthetic.write_csv(world, tmp_path)
    header, *rows = (tmp_path / "shop_events.csv").read_text().splitlines(keepends=True)
    many = [f"{copy}-{row}" for copy in range(8) for row in rows]
    (tmp_path / "shop_events.csv").write_text(header + "".join(many))
    ref = read(shop_config(tmp_path, memory_limit="60MB"), "shop")
    assert ref.table(EVENT_PARTS).num_rows == len(many)
    assert not (tmp_path / "store" / "work" / "events" / "shop" / "spill").exists()


def test_too_little_memory_is_said_with_the_setting_to_raise(read, tmp_path, world):
    synthetic.write_csv(world, tmp_path)
    with pytest.raises(SystemStateError, match=r"(?s)its 8MB of memory.*Raise memory_limit in \[events\]"):
        read(shop_config(tmp_path, memory_limit="8MB"), "shop")


def test_the_fixture_is_the_seeded_world(tmp_path):
    synthetic.write_csv(synthetic.world(users=24, products=32, days=84, seed=7), tmp_path)
    for path in FIXTURES.glob("shop_*.csv"):
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name


def test_a_log_of_other_peoples_products_only_is_refused(read, tmp_path):
    for path in FIXTURES.glob("shop_*.csv"):
        shutil.copy(path, tmp_path)
    products = tmp_path / "shop_products.csv"
    products.write_text(products.read_text().replace("\np", "\nq"))
    with pytest.raises(BadDataError, match="unknown_product"):
        read(shop_config(tmp_path), "other")


def test_nothing_but_bad_rows_leaves_no_log(read, tmp_path):
    for path in FIXTURES.glob("shop_*.csv"):
        shutil.copy(path, tmp_path)
    events = tmp_path / "shop_events.csv"
    events.write_text(
        events.read_text().replace(",shown,", ",seen,").replace(",bought,", ",got,").replace(",redeemed,", ",x,")
    )
    with pytest.raises(BadDataError, match="Nothing would be left"):
        read(shop_config(tmp_path, max_bad=1.0), "none")


def test_arrow_tables_of_a_world_conform_to_the_contract(world):
    for name in ("events", "products", "advertisers", "campaigns", "users"):
        table = schema.conform(world[name], getattr(schema, name.upper()))
        assert isinstance(table, pa.Table)
