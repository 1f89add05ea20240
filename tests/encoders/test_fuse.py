import numpy as np
import pytest
from safetensors.numpy import save_file

from encoders.base import unit
from encoders.fuse import Fusion, Whitening, fit_whitening, turned_onto

RNG = np.random.default_rng(0)
LOUD = (RNG.normal(size=(400, 12)) * np.geomspace(8, 0.5, 12) + 3).astype(np.float32)


def spread(whitening, vectors):
    """Standard deviations along the whitened axes, before rows are scaled."""
    return ((vectors - whitening.mean) @ whitening.components).std(axis=0)


def test_full_whitening_gives_every_direction_the_same_spread():
    np.testing.assert_allclose(spread(fit_whitening(LOUD, 12, 1.0, 0.0), LOUD), 1, rtol=1e-3)


def test_power_and_regularisation_lie_between_pca_and_full_whitening():
    ratios = []
    for power, r in ((0.0, 0.0), (0.5, 0.0), (1.0, 0.1), (1.0, 0.0)):
        spreads = spread(fit_whitening(LOUD, 12, power, r), LOUD)
        ratios.append(spreads[0] / spreads[-1])
    assert ratios[0] == pytest.approx(16, rel=0.2)
    assert ratios[1] == pytest.approx(4, rel=0.2)
    assert ratios[3] == pytest.approx(1, rel=0.01)
    assert ratios[3] < ratios[2] < ratios[0]


def test_the_common_direction_is_taken_out():
    assert unit(LOUD + 30).mean(axis=0) @ unit(LOUD + 30).mean(axis=0) > 0.9
    whitened = fit_whitening(LOUD + 30, 8, 0.5, 0.1).apply(LOUD + 30)
    assert np.linalg.norm(whitened.mean(axis=0)) < 0.15


def test_directions_without_variance_are_zero():
    flat = np.zeros((50, 9), np.float32)
    flat[:, :2] = RNG.normal(size=(50, 2))
    whitening = fit_whitening(flat, 5, 1.0, 0.0)
    assert np.abs(whitening.components[:, 2:]).max() == 0
    assert np.isfinite(whitening.components).all()


@pytest.mark.parametrize("rows", [0, 1])
def test_too_few_rows_whiten_to_nothing(rows):
    whitening = fit_whitening(LOUD[:rows], 4, 0.5, 0.1)
    assert whitening.components.shape == (12, 4)
    assert not whitening.apply(LOUD[:3]).any()


def test_more_dimensions_than_components_are_padded():
    assert fit_whitening(LOUD, 20, 0.5, 0.1).apply(LOUD).shape == (400, 20)


def test_turning_finds_a_hidden_rotation():
    rows = unit(RNG.normal(size=(200, 6)))
    hidden, _ = np.linalg.qr(RNG.normal(size=(6, 6)))
    identity = Whitening(np.zeros(6, np.float32), np.eye(6, dtype=np.float32))
    turned = turned_onto(identity, rows, unit(rows @ hidden))
    np.testing.assert_allclose(turned.apply(rows), rows @ hidden, atol=1e-5)


def test_a_missing_modality_leaves_the_other_alone():
    plain = Whitening(np.zeros(6, np.float32), np.eye(6, dtype=np.float32))
    fusion = Fusion({"attributes": plain, "text": plain}, {"text": 1.0, "attributes": 0.5})
    assert fusion.modalities == ("text", "attributes")
    text, facts = unit(RNG.normal(size=(4, 6))), unit(RNG.normal(size=(4, 6)))
    has_text, has_facts = np.array([1, 1, 0, 0], bool), np.array([1, 0, 1, 0], bool)
    content = fusion.fuse(np.stack([text, facts], axis=1), np.stack([has_text, has_facts], axis=1))
    np.testing.assert_allclose(content[0], unit(text + 0.5 * facts)[0], atol=1e-6)
    np.testing.assert_allclose(content[1], text[1], atol=1e-6)
    np.testing.assert_allclose(content[2], facts[2], atol=1e-6)
    assert not content[3].any()
    assert content.dtype == np.float32


def test_whitenings_survive_a_file(tmp_path):
    fusion = Fusion({"text": fit_whitening(LOUD, 4, 0.5, 0.1)}, {"text": 1.0})
    save_file(fusion.tensors(), tmp_path / "fusion.safetensors")
    again = Fusion.load(tmp_path / "fusion.safetensors", fusion.weights)
    np.testing.assert_array_equal(again.whitenings["text"].apply(LOUD), fusion.whitenings["text"].apply(LOUD))
