"""The fashion catalogue with simulated people: on a tiny one of the same format, and the real one where it is."""

import gzip
import zipfile

import pytest

from data import ingest
from data.context import RunContext
from data.errors import BadDataError
from data.parts import EVENT_PARTS
from data.sources import fashion
from tests.fixtures import fashion as tiny
from tests.fixtures import public_sets

SMALL = {"users": 40, "events": 6_000, "days": 20}


def config(root, **options):
    return ingest.Config.model_validate({"source": "fashion", "fashion": {"root": root, **SMALL, **options}})


@pytest.fixture
def read(tmp_path, store, make_ref):
    folder = tiny.write(tmp_path)

    def run(key="test", seed=0, **options):
        chosen, context = config(folder, **options), RunContext(seed=seed)
        return make_ref(store, "events", lambda out: ingest.run(chosen, {}, out, context), key)

    run.folder = folder
    return run


def test_every_product_is_described_and_has_its_picture(read):
    products = {row["product_id"]: row for row in read().table("products.parquet").to_pylist()}
    given = {row["product_id"]: row for row in tiny.rows()}
    assert set(products) == set(given)
    for identity, row in products.items():
        own = given[identity]
        assert row["title"] == own["title"]
        assert row["category"] == [own["category"], own["sub_category"], own["product_type"]]
        assert dict(row["attributes"]) == {name: own[name] for name in ("gender", "colour", "usage")}
        assert row["advertiser_id"] == (own["brand_guess"] or "unbranded")
        assert row["image"] == (None if identity == tiny.NO_PICTURE else [f"{identity}.jpg"])
        assert row["price"] is None


def test_every_event_and_the_summary_say_simulated(read):
    events = read()
    summary = events.json("summary.json")
    assert summary["simulated"] is True
    assert "simulated" in summary["name"]
    assert set(events.table(EVENT_PARTS)["source"].to_pylist()) == {"simulated"}
    assert events.metrics["pictures"] == len(tiny.rows()) - 1
    assert events.metrics["interests"] == 6  # three types, for men and for women


def test_no_other_source_is_called_simulated(store, make_ref, tmp_path):
    given = {"source": "gowalla", "gowalla": {"root": public_sets.write("gowalla", tmp_path)}}
    chosen = ingest.Config.model_validate(given)
    ref = make_ref(store, "events", lambda out: ingest.run(chosen, {}, out, RunContext(threads=1)))
    assert "simulated" not in ref.json("summary.json")


def test_the_seed_decides_what_people_do_and_nothing_else(read):
    hashes = [
        {name: file["sha256"] for name, file in read(key, seed).manifest["files"].items()}
        for key, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_pictures_can_be_left_out_and_a_missing_zip_is_named(read):
    assert set(read(pictures=None).table("products.parquet")["image"].to_pylist()) == {None}
    assert fashion.unpack_media(config(read.folder, pictures=None).fashion, read.folder) is None
    (read.folder / "images_96x128.zip").unlink()
    with pytest.raises(BadDataError, match=r"expected images_96x128\.zip in"):
        read("again")


def test_identity_is_that_of_the_content(read, tmp_path):
    settings = config(read.folder).fashion
    before = fashion.identity(settings)
    moved = tmp_path / "moved"
    read.folder.rename(moved)
    assert fashion.identity(config(moved).fashion) == before
    with zipfile.ZipFile(moved / "images_96x128.zip", "a") as archive:
        archive.writestr("9.jpg", b"x")
    changed = fashion.identity(config(moved).fashion)
    assert changed[0] == before[0]
    assert changed[1] != before[1]
    assert fashion.unpack_media(config(moved).fashion, tmp_path / "media").name in changed[1]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"1003,", b"1002,", "every product once, got 1002"),
        (b"1003,", b"10a3,", "whole numbers as product_id"),
        (b"Tshirts", b"", "expected a text in product_type"),
        (b"gender", b"sex", "expected columns"),
    ],
)
def test_another_catalogue_is_refused(read, old, new, said):
    path = read.folder / "products.csv.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(old, new, 1)))
    with pytest.raises(BadDataError, match=said):
        read()


def test_the_real_catalogue_is_as_its_readme_says(tmp_path):
    settings = config(public_sets.real_folder("fashion-images")).fashion
    rows = fashion.catalogue(settings)
    assert len(rows) == 2_906
    assert all(row["image"] for row in rows)
    assert sum(row["advertiser_id"] == "unbranded" for row in rows) == 23
    assert len({row["advertiser_id"] for row in rows}) == 112
    assert sum(row["gender"] == "Women" for row in rows) == 769
    assert sum(row["category"] == "Footwear" for row in rows) == 1_580
    assert len({row["product_type"] for row in rows}) == 31
    folder = fashion.unpack_media(settings, tmp_path)
    assert sum(path.stat().st_size > 500 for path in folder.iterdir()) == 2_906
