import json
import shutil
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from data import synthetic
from data.artifacts import ArtifactRef, sha256_file
from data.context import RunContext
from data.errors import BadDataError, SystemStateError, UsageError
from data.schema import MICROS_PER_DAY, to_micros
from encoders import encode
from encoders.base import MODALITIES
from encoders.encode import Config, embed_texts
from encoders.entities import ENTITY_TYPES, read_catalogue
from tests.fixtures.tiny_model import write_model

T0 = synthetic.cuts()[0]
BEFORE = to_micros(T0)


@pytest.fixture
def features_of(store, make_ref, tiny_model):
    """`features_of(world, key) -> ArtifactRef` of stage features with the tiny model."""

    def make(world, key="test", **options):
        events = make_ref(store, "events", lambda out: synthetic.write_events(world, out), key)
        config = Config(**{"t0": T0, "model": tiny_model, "dim": 8} | options)
        return make_ref(
            store, "features", lambda out: encode.run(config, {"events": events}, out, RunContext(threads=1)), key
        )

    return make


def by_id(ref, kind):
    ids = ref.table(f"entities_{kind}.parquet")["entity_id"].to_pylist()
    return dict(zip(ids, np.asarray(ref.array(f"content_{kind}.npy")), strict=True))


def rows_with(table, extra):
    more = pa.Table.from_pylist(extra, schema=table.schema)
    return pa.concat_tables([table, more]).sort_by(table.column_names[0])


LATE = {"title": "Zebra Lamp", "category": ["Light", "Lamps"], "attributes": [("style", "Odd")], "price": 99.0}
LATE |= {"advertiser_id": "a00", "first_seen": BEFORE, "known_at": BEFORE}


def test_every_entity_has_aligned_content(features_of, world):
    ref = features_of(world)
    sizes = {"product": 80, "advertiser": 8, "category": 28, "user": 60}
    assert ref.metrics["entities"] == sizes
    for kind in ENTITY_TYPES:
        ids = ref.table(f"entities_{kind}.parquet")["entity_id"].to_pylist()
        content, mask = ref.array(f"content_{kind}.npy"), ref.array(f"mask_{kind}.npy")
        assert ids == sorted(ids)
        assert content.shape == (sizes[kind], 8)
        assert mask.shape == (sizes[kind], 4)
        np.testing.assert_allclose(np.linalg.norm(content, axis=1), 1, rtol=1e-5)
    assert ref.array("text.npy").shape == (ref.metrics["texts"], 32)


def test_masks_say_which_modality_is_there(features_of, world):
    ref = features_of(world)
    shares = {kind: [ref.metrics["coverage"][kind][name] for name in MODALITIES] for kind in ENTITY_TYPES}
    assert shares == {
        "product": [1, 0, 0, 1],
        "advertiser": [1, 0, 0, 1],
        "category": [1, 0, 0, 1],
        "user": [0, 0, 0, 1],
    }
    assert (ref.table("entities_user.parquet")["text_row"].to_numpy() == -1).all()


def test_entities_without_anything_are_zero_and_masked(features_of, world):
    users = rows_with(world["users"], [{"user_id": "mute", "attributes": None, "known_at": 0}])
    bare = dict.fromkeys(("title", "category", "attributes", "price")) | {"product_id": "void"}
    products = rows_with(world["products"], [{"first_seen": 0, "known_at": 0} | bare])
    ref = features_of(world | {"users": users, "products": products})
    assert not by_id(ref, "user")["mute"].any()
    assert not by_id(ref, "product")["void"].any()
    row = ref.table("entities_product.parquet")["entity_id"].to_pylist().index("void")
    assert not ref.array("mask_product.npy")[row].any()


def test_rows_known_from_t0_on_change_nothing(features_of, world):
    late = [LATE | {"product_id": f"a{number}", "title": f"Zebra Lamp {number}"} for number in range(9)]
    users = rows_with(world["users"], [{"user_id": "late", "attributes": [("region", "9")], "known_at": BEFORE}])
    more = world | {"products": rows_with(world["products"], late), "users": users}
    before, after = features_of(world, "before"), features_of(more, "after")
    assert sha256_file(before.path / "fusion.safetensors") == sha256_file(after.path / "fusion.safetensors")
    for kind in ENTITY_TYPES:
        found = by_id(after, kind)
        for name, vector in by_id(before, kind).items():
            np.testing.assert_array_equal(vector, found[name], err_msg=name)


def test_rows_known_before_t0_do_change_the_whitening(features_of, world):
    early = [
        LATE | {"product_id": f"a{number}", "title": f"Zebra {number}", "known_at": BEFORE - 1} for number in range(9)
    ]
    more = world | {"products": rows_with(world["products"], early)}
    hashes = {
        sha256_file(features_of(w, key).path / "fusion.safetensors") for w, key in ((world, "one"), (more, "two"))
    }
    assert len(hashes) == 2


def test_equal_inputs_give_equal_bytes(features_of, world):
    one, two = features_of(world, "one"), features_of(world, "two")
    assert {n: f["sha256"] for n, f in one.manifest["files"].items()} == {
        n: f["sha256"] for n, f in two.manifest["files"].items()
    }


def test_a_new_advertiser_counts_the_products_it_came_with(features_of, world):
    start = BEFORE + MICROS_PER_DAY
    brand = {"advertiser_id": "zz", "name": None, "description": None, "vertical": None, "known_at": start}
    came = LATE | {"product_id": "z1", "advertiser_id": "zz", "known_at": start}
    joined = came | {"product_id": "z2", "title": "Quite Other", "known_at": start + 1}
    products = rows_with(world["products"], [came, joined])
    more = world | {"advertisers": rows_with(world["advertisers"], [brand]), "products": products}
    ref = features_of(more)
    np.testing.assert_allclose(by_id(ref, "advertiser")["zz"], by_id(ref, "product")["z1"], atol=1e-6)


def test_nothing_known_before_t0_is_refused(features_of, world):
    with pytest.raises(BadDataError, match="choose a later t0"):
        features_of(world, t0=datetime(2000, 1, 1, tzinfo=UTC))


def test_a_query_lands_where_its_text_is(features_of, world):
    ref = features_of(world, attributes_weight=0.0)
    product = world["products"].slice(3, 1).to_pylist()[0]
    query = embed_texts(ref, [f"{product['title']}, {', '.join(reversed(product['category']))}", "something else"])
    contents = by_id(ref, "product")
    assert query.shape == (2, 8)
    assert max(contents, key=lambda name: float(contents[name] @ query[0])) == product["product_id"]
    assert contents[product["product_id"]] @ query[0] > 0.999


def test_a_query_without_words_is_refused(features_of, world):
    with pytest.raises(UsageError, match="words"):
        embed_texts(features_of(world), ["tea", " "])


def test_a_query_through_another_model_is_refused(features_of, world, tmp_path):
    model = write_model(tmp_path / "model")
    ref = features_of(world, model=model)
    shutil.rmtree(model)
    write_model(tmp_path / "model", seed=1)
    with pytest.raises(SystemStateError, match="install that one or run again"):
        embed_texts(ref, ["tea"])


def test_the_artifact_names_its_encoders(features_of, world):
    ref: ArtifactRef = features_of(world)
    described = json.loads(ref.file("encoder.json").read_text())
    for modality in ("text", "attributes"):
        assert set(described[modality]) == {
            "modality", "model", "revision", "licence", "preprocessing", "dtype", "normalisation",
        }  # fmt: skip
    assert described["knots"]["price"][0] == 0.5


def test_a_category_is_known_from_its_first_product(synthetic_events, world):
    categories = read_catalogue(synthetic_events).entities["category"]
    known = dict(zip(categories.ids, categories.known, strict=True))
    leaf = world["products"].filter(pc.equal(pc.list_element(world["products"]["category"], 2), "Kitten Food"))
    assert known["Pets > Cat > Kitten Food"] == min(leaf["known_at"].to_pylist())
    assert known["Pets"] == to_micros(synthetic.START)
