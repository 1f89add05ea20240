import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from data.errors import SystemStateError, UsageError
from encoders.hub_joint import HubTokens
from encoders.image import load_image_encoder
from encoders.joint import load_joint
from tests.fixtures import tiny_vision
from tests.fixtures.tiny_vision import pictures

WRITERS = {"clip": tiny_vision.write_clip, "siglip": tiny_vision.write_siglip}
TEXTS = ["tea", "green tea", "a", "soap", "rye bread"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {name: write(tmp_path_factory.mktemp(name)) for name, write in WRITERS.items()}


@pytest.fixture(scope="module")
def clip(folders):
    return load_joint(folders["clip"])


@torch.inference_mode()
def logits(folder, texts, batch):
    """What the whole model says of every picture and text, without its scale."""
    network, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer(texts, padding="max_length", max_length=16, truncation=True, return_tensors="pt")
    if network.config.model_type == "siglip":
        del tokens["attention_mask"]
    pixels = torch.from_numpy(batch).permute(0, 3, 1, 2) / 255
    pixels = (pixels - torch.tensor([0.5, 0.4, 0.3])[:, None, None]) / torch.tensor([0.2, 0.3, 0.4])[:, None, None]
    found = network(pixel_values=pixels, input_ids=tokens["input_ids"], attention_mask=tokens.get("attention_mask"))
    return (found.image_embeds @ found.text_embeds.T).numpy()


@pytest.mark.parametrize("name", WRITERS)
def test_products_of_both_sides_are_those_of_the_whole_model(name, folders):
    joint = load_joint(folders[name])
    found = joint.image.encode(pictures(4)) @ joint.text.encode(TEXTS).T
    np.testing.assert_allclose(found, logits(folders[name], TEXTS, pictures(4)), atol=1e-5)
    assert np.ptp(found) > 0.1


@pytest.mark.parametrize("name", WRITERS)
def test_the_texts_beside_a_text_do_not_change_its_vector(name, folders):
    text = load_joint(folders[name]).text
    together = text.encode([*TEXTS, "a much longer text"])
    alone = np.concatenate([text.encode([one]) for one in TEXTS])
    np.testing.assert_allclose(together[:5], alone, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, rtol=1e-5)
    assert len(np.unique(together.round(4), axis=0)) == 6
    assert text.encode([]).shape == (0, text.dim)


def test_a_model_that_reads_its_padding_gets_all_of_it_and_no_mask(folders):
    tokenizer = AutoTokenizer.from_pretrained(folders["clip"])
    tokens = HubTokens(tokenizer, 16, reads_padding=True)(["tea", "a"])
    assert {name: tuple(ids.shape) for name, ids in tokens.items()} == {"input_ids": (2, 16)}
    tokens = HubTokens(tokenizer, 16, reads_padding=False)(["tea", "a"])
    assert tokens["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]


def test_more_texts_than_a_batch_keep_their_order(clip):
    texts = [f"{letter} {number}" for letter in "abcdefgh" for number in range(9)]
    np.testing.assert_allclose(clip.text.encode(texts)[50:53], clip.text.encode(texts[50:53]), atol=1e-5)


def test_long_texts_are_cut_where_the_model_ends(clip):
    assert clip.text.max_tokens == 16
    np.testing.assert_array_equal(clip.text.encode(["abcdefghijklmn"]), clip.text.encode(["abcdefghijklmnopqrstu"]))
    assert "at most 16 tokens" in clip.text.identity["preprocessing"]


def test_the_image_side_is_the_image_encoder(folders, clip):
    alone = load_image_encoder(folders["clip"])
    assert alone.identity == clip.image.identity
    np.testing.assert_array_equal(alone.encode(pictures(2)), clip.image.encode(pictures(2)))


def test_identity_of_the_text_side_follows_weights_tokenizer_and_dtype(folders, clip, tmp_path):
    folder = tiny_vision.write_clip(tmp_path / "same")
    assert load_joint(folder).text.identity["revision"] == clip.text.identity["revision"]
    words = (tmp_path / "same" / "tokenizer.json").read_text()
    (tmp_path / "same" / "tokenizer.json").write_text(words.replace('"##9"', '"##9x"'))
    changed = load_joint(folder)
    assert changed.text.identity["revision"] != clip.text.identity["revision"]
    assert changed.image.identity["revision"] == clip.image.identity["revision"]
    half = load_joint(folders["clip"], dtype="bfloat16")
    assert half.text.identity == clip.text.identity | {"dtype": "bfloat16"}
    assert (half.text.encode(TEXTS) * clip.text.encode(TEXTS)).sum(axis=1).min() > 0.99


def test_a_model_of_one_side_is_refused(tmp_path):
    with pytest.raises(UsageError, match="pictures and texts"):
        load_joint(tiny_vision.write_dinov2(tmp_path))


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    folder = tiny_vision.write_clip(tmp_path)
    for path in tmp_path.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(SystemStateError, match="tokenizer"):
        load_joint(folder)
