"""Of the extra `clip`: skipped where open_clip is not installed."""

import importlib.util
import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from data.errors import SystemStateError, UsageError
from encoders.image import load_image_encoder
from encoders.joint import load_joint
from encoders.open_clip_models import load_open_clip
from encoders.pixels import Geometry, Normalisation
from tests.fixtures.tiny_vision import pictures

needs_open_clip = pytest.mark.skipif(importlib.util.find_spec("open_clip") is None, reason="needs the extra clip")

ARCHITECTURE = "strata-tiny"
_VISION = {"image_size": 32, "layers": 2, "width": 64, "patch_size": 8}
_TEXT = {"context_length": 12, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A file with random weights of a small architecture, which open_clip then knows by name."""
    import open_clip

    folder = tmp_path_factory.mktemp("open_clip")
    (folder / f"{ARCHITECTURE}.json").write_text(
        json.dumps({"embed_dim": 24, "vision_cfg": _VISION, "text_cfg": _TEXT})
    )
    open_clip.add_model_config(folder)
    torch.manual_seed(0)
    save_file(open_clip.create_model(ARCHITECTURE, pretrained=None).state_dict(), folder / "weights.safetensors")
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    return folder / "weights.safetensors"


@needs_open_clip
def test_both_sides_are_those_of_open_clip(weights):
    import open_clip

    joint = load_joint(f"open_clip:{ARCHITECTURE}:{weights}")
    plain = open_clip.create_model(ARCHITECTURE, pretrained=str(weights)).eval()
    mean, std = (torch.tensor(plain.visual.preprocess_cfg[name])[:, None, None] for name in ("mean", "std"))
    batch, texts = pictures(3), ["a tea", "green soap"]
    with torch.inference_mode():
        pixels = (torch.from_numpy(batch).permute(0, 3, 1, 2) / 255 - mean) / std
        of_images = plain.encode_image(pixels, normalize=True).numpy()
        of_texts = plain.encode_text(open_clip.get_tokenizer(ARCHITECTURE)(texts), normalize=True).numpy()
    np.testing.assert_allclose(joint.image.encode(batch), of_images, atol=1e-5)
    np.testing.assert_allclose(joint.text.encode(texts), of_texts, atol=1e-5)
    assert (joint.image.dim, joint.text.dim, joint.text.max_tokens) == (24, 24, 12)


@needs_open_clip
def test_the_image_side_alone_and_its_description(weights):
    encoder = load_image_encoder(f"open_clip:{ARCHITECTURE}:{weights}")
    assert encoder.geometry == Geometry(32, 32, "bicubic", "crop")
    assert encoder.identity["licence"] == "mit"
    mean = Normalisation((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
    assert str(mean) in encoder.identity["preprocessing"]
    assert encoder.identity == load_joint(f"open_clip:{ARCHITECTURE}:{weights}").image.identity


@needs_open_clip
def test_what_open_clip_cannot_load_says_what_to_do(weights):
    with pytest.raises(UsageError, match="ViT-B-32"):
        load_image_encoder("open_clip:ViT-B-3:x")
    with pytest.raises(UsageError, match="laion2b_s34b_b79k"):
        load_image_encoder("open_clip:ViT-B-32")
    with pytest.raises(SystemStateError, match="local file"):
        load_image_encoder(f"open_clip:{ARCHITECTURE}:{weights.with_name('nowhere.safetensors')}")


@needs_open_clip
def test_a_tag_that_cannot_be_fetched_says_what_to_do():
    with pytest.raises(SystemStateError, match="local file"):
        load_open_clip("open_clip:RN50:openai")


@pytest.mark.skipif(importlib.util.find_spec("open_clip") is not None, reason="open_clip is installed")
def test_without_the_extra_the_error_names_it():
    with pytest.raises(SystemStateError, match=r"\.\[clip\]"):
        load_image_encoder("open_clip:ViT-B-32:laion2b_s34b_b79k")
