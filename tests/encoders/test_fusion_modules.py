import numpy as np
import torch

from encoders.base import MODALITIES
from encoders.fuse import ContentPool, Fusion, GatedFusion, Whitening

RNG = np.random.default_rng(0)
PARTS = RNG.normal(size=(7, len(MODALITIES), 5)).astype(np.float32)
PRESENT = RNG.random((7, len(MODALITIES))) < 0.6
PRESENT[0] = False
WEIGHTS = {"text": 1.0, "image": 0.7, "video": 0.5, "attributes": 0.4}


def gated():
    torch.manual_seed(0)
    return GatedFusion(5, [WEIGHTS[name] for name in MODALITIES])


def untrained(parts=PARTS, present=PRESENT):
    plain = Whitening(np.zeros(5, np.float32), np.eye(5, dtype=np.float32))
    return Fusion(dict.fromkeys(MODALITIES, plain), WEIGHTS).fuse(parts, present)


def test_the_gate_starts_as_the_untrained_mean():
    found = gated()(torch.from_numpy(PARTS), torch.from_numpy(PRESENT)).detach().numpy()
    np.testing.assert_allclose(found, untrained(), atol=1e-6)
    assert not found[0].any()


def test_what_is_missing_counts_for_nothing():
    poisoned = PARTS.copy()
    poisoned[~PRESENT] = 1e6
    module = gated()
    torch.nn.init.normal_(module.gate.weight)
    one, other = (module(torch.from_numpy(parts), torch.from_numpy(PRESENT)) for parts in (PARTS, poisoned))
    torch.testing.assert_close(one, other)


def test_the_gate_learns_which_modality_tells():
    """The target is the picture alone; the untrained mean is far from it."""
    torch.manual_seed(1)
    parts = torch.randn(256, len(MODALITIES), 5)
    present = torch.tensor([True, True, False, True]).expand(256, -1)
    target = torch.nn.functional.normalize(parts[:, 1], dim=-1)
    module = gated()

    def loss():
        return 1 - (module(parts, present) * target).sum(-1).mean()

    before = loss().item()
    step = torch.optim.Adam(module.parameters(), 0.02)
    for _ in range(60):
        step.zero_grad()
        value = loss()
        value.backward()
        step.step()
    assert loss().item() < before / 3


def test_the_pool_starts_as_the_mean_of_each_row():
    values, offsets = torch.randn(6, 4), torch.tensor([0, 2, 2, 6])
    found = ContentPool(4)(values, offsets)
    expected = torch.stack([values[:2].mean(0), torch.zeros(4), values[2:].mean(0)])
    torch.testing.assert_close(found, torch.nn.functional.normalize(expected, dim=-1))


def test_the_pool_weighs_by_score_whatever_its_size():
    pool = ContentPool(2)
    pool.score.weight.data = torch.tensor([[400.0, 0.0]])
    values = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    torch.testing.assert_close(pool(values, torch.tensor([0, 3])), torch.tensor([[1.0, 0.0]]))
    pool(values.requires_grad_(), torch.tensor([0, 3])).sum().backward()
    assert pool.score.weight.grad is not None
    assert torch.isfinite(pool.score.weight.grad).all()
