import io
import shutil

import numpy as np
import pytest
from PIL import Image

from data import synthetic
from data.context import RunContext
from data.errors import BadDataError
from data.progress import Progress
from encoders import encode
from encoders.base import MODALITIES
from encoders.encode import Config, embed_texts, source_identity
from encoders.media.reasons import Reason
from tests.encoders.media import corpus as hostile
from tests.fixtures import tiny_vision

T0 = synthetic.cuts()[0]
GOOD = 12
IMAGE = MODALITIES.index("image")


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return tiny_vision.write_clip(tmp_path_factory.mktemp("clip"))


@pytest.fixture
def root(tmp_path):
    """Twelve photos, one of them twice, one torn; a picture outside, and a link to it."""
    folder = tmp_path / "media"
    folder.mkdir()
    for number, pixels in enumerate(tiny_vision.pictures(GOOD)):
        Image.fromarray(pixels).save(folder / f"{number}.png")
    shutil.copy(folder / "0.png", folder / "again.png")
    torn = (folder / "1.png").read_bytes()
    (folder / "torn.png").write_bytes(torn[: len(torn) // 2])
    Image.new("RGB", (40, 40), "red").save(tmp_path / "outside.png")
    (folder / "link.png").symlink_to(tmp_path / "outside.png")
    return folder


PATHS = [
    *([f"{number}.png"] for number in range(GOOD)),
    ["again.png"],
    ["torn.png"],
    ["../outside.png", "2.png"],
    ["link.png"],
    ["gone.png"],
    ["https://example.org/x.png"],
    ["3.png", "4.png"],
]


def with_pictures(world, paths=PATHS):
    """The world's products, the first of them with these pictures."""
    products = world["products"].to_pylist()
    for product, own in zip(products, paths, strict=False):
        product["image"] = own
    return world | {"products": world["products"].from_pylist(products, schema=world["products"].schema)}


@pytest.fixture
def features_of(store, make_ref, tiny_model, clip, root):
    """`features_of(world, key, **options) -> ArtifactRef` of stage features with tiny models."""

    def make(world, key="test", **options):
        events = make_ref(store, "events", lambda out: synthetic.write_events(world, out), key)
        given = {"t0": T0, "model": tiny_model, "image_model": clip, "media_root": root, "dim": 8} | options
        given = Config(**given)
        return make_ref(
            store, "features", lambda out: encode.run(given, {"events": events}, out, RunContext(threads=1)), key
        )

    return make


def test_pictures_join_the_content_and_what_cannot_be_read_is_listed(features_of, world):
    ref, without = features_of(with_pictures(world)), features_of(world, "without")
    masks = ref.array("mask_product.npy")[: len(PATHS), IMAGE].tolist()
    assert masks == [True] * GOOD + [True, False, True, False, False, False, True]
    listed = {(row["path"], row["reason"]) for row in ref.table("quarantine.parquet").to_pylist()}
    assert listed == {
        ("torn.png", "broken"),
        ("../outside.png", "unsafe_name"),
        ("link.png", "symlink"),
        ("gone.png", "not_found"),
        ("https://example.org/x.png", "remote_disabled"),
    }
    assert ref.metrics["images"] == GOOD
    assert ref.metrics["unread"]["broken"] == 1
    content, before = ref.array("content_product.npy"), without.array("content_product.npy")
    assert np.abs(content[:GOOD] - before[:GOOD]).max(axis=1).min() > 1e-3
    assert without.table("quarantine.parquet").num_rows == 0


def test_rows_lead_from_products_to_raw_vectors(features_of, world):
    ref = features_of(with_pictures(world))
    rows = ref.table("entities_product.parquet")["image_rows"].to_pylist()
    assert rows[0] == rows[GOOD]
    assert rows[GOOD + 1] == []
    assert sorted(rows[len(PATHS) - 1]) == sorted(rows[3] + rows[4])
    raw = ref.array("image.npy")
    np.testing.assert_allclose(np.linalg.norm(raw, axis=1), 1, rtol=1e-5)
    assert len(raw) == GOOD


def test_parts_fuse_to_the_content(features_of, world):
    ref = features_of(with_pictures(world), near_copies=None)
    described = ref.json("encoder.json")
    assert described["modalities"] == ["text", "image", "attributes"]
    parts, mask = ref.array("parts_product.npy"), ref.array("mask_product.npy")
    there = mask[:, [MODALITIES.index(name) for name in described["modalities"]]]
    weights = np.array([described["weights"][name] for name in described["modalities"]])
    fused = (parts * (there * weights)[:, :, None]).sum(axis=1)
    fused /= np.linalg.norm(fused, axis=1, keepdims=True)
    np.testing.assert_allclose(fused, ref.array("content_product.npy"), atol=1e-5)


def test_nothing_is_read_without_a_folder_or_a_model(features_of, world):
    for name, options in {"folder": {"media_root": None}, "model": {"image_model": None}}.items():
        ref = features_of(with_pictures(world), name, **options)
        assert not ref.has("image.npy")
        assert not ref.array("mask_product.npy")[:, IMAGE].any()


def test_pictures_that_nobody_reads_are_mentioned(store, make_ref, world, tiny_model):
    events = make_ref(store, "events", lambda out: synthetic.write_events(with_pictures(world), out), "test")
    said = io.StringIO()
    config, ctx = Config(t0=T0, model=tiny_model, dim=8), RunContext(progress=Progress(said))
    make_ref(store, "features", lambda out: encode.run(config, {"events": events}, out, ctx), "test")
    assert f"{len(PATHS)} products name pictures or films that are not read: set features.media_root" in said.getvalue()


def test_the_key_knows_every_byte_below_the_folder_and_no_more(root, tmp_path):
    config = Config(t0=T0, media_root=root)
    before = source_identity(config)
    assert len(before) == GOOD + 2
    shutil.copytree(root, tmp_path / "moved", symlinks=True)
    assert source_identity(Config(t0=T0, media_root=tmp_path / "moved")) == before
    with open(root / "5.png", "ab") as stream:
        stream.write(b"x")
    assert source_identity(config) != before
    assert source_identity(Config(t0=T0)) == []
    assert Config(t0=T0, media_root=root, batch_tokens=99, decoders=7).result_fields() == config.result_fields()


@pytest.mark.parametrize(
    "change", [{"image_model": "other"}, {"dtype": "bfloat16"}, {"video_frames": 2}, {"caps": {"pixels": 9}}]
)
def test_what_can_change_a_vector_is_in_the_key(change):
    assert Config(t0=T0, **change).result_fields() != Config(t0=T0).result_fields()


def test_a_folder_that_is_not_there_is_refused_before_any_work(tmp_path):
    with pytest.raises(BadDataError, match=r"set features\.media_root"):
        source_identity(Config(t0=T0, media_root=tmp_path / "none"))


def test_a_joint_model_reads_texts_and_pictures(features_of, world, clip):
    ref = features_of(with_pictures(world), model=clip)
    described = ref.json("encoder.json")
    assert described["joint"]
    assert described["text"]["model"] == described["image"]["model"] == clip
    assert ref.array("text.npy").shape[1] == ref.array("image.npy").shape[1] == 16
    assert embed_texts(ref, ["tea"]).shape == (1, 8)


def test_a_hostile_catalogue_ends_in_the_quarantine_and_its_products_go_on(features_of, world, tmp_path):
    """Every hostile file and name of the corpus, a sound picture beside each: one run, each with its reason."""
    pytest.importorskip("av", reason="films need the extra `video`")
    root = tmp_path / "hostile"
    corpus = hostile.build(root, tmp_path / "elsewhere")
    good = hostile.good_names(root)[0]
    said = {name for name in corpus if name and name.encode(errors="ignore").decode() == name}  # what a table can hold
    corpus = {name: right for name, right in corpus.items() if name in said and None not in right}
    assert len(corpus) >= 60
    # A picture is read without frames, so that a sound film is refused as one.
    right = {name: {*given, Reason.NOT_A_PICTURE} for name, given in corpus.items()}
    names = list(corpus)
    paths = [[*names[start::60], good] for start in range(60)]
    caps = {"bytes": hostile.BYTES, "pixels": hostile.PIXELS, "seconds": hostile.SECONDS, "memory": hostile.MEMORY}
    ref = features_of(with_pictures(world, paths), media_root=root, caps=caps | {"duration": 30})
    listed = {row["path"]: row["reason"] for row in ref.table("quarantine.parquet").to_pylist()}
    assert set(listed) == set(names)
    assert not {name: reason for name, reason in listed.items() if reason not in right[name]}
    assert ref.array("mask_product.npy")[:60, IMAGE].all()
    assert ref.metrics["images"] == 1
