"""Look-ups for a GPU have the values and gradients of torch's own."""

import pytest
import torch
from torch.nn.functional import embedding, embedding_bag

from hierarchy.lookup import _Rows, _Sums, rows_of, sums_of
from tests.hierarchy.planted_tastes import DEVICES


def both(ours, theirs, table, index):
    found = []
    for call in (ours, theirs):
        leaf = table.clone().requires_grad_()
        out = call(leaf, index)
        (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype, device=out.device).view_as(out)).sum().backward()
        found.append((out.detach(), leaf.grad))
    return found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(0,), (1,), (40, 7), (9000, 2)])
def test_rows_add_to_their_own_and_padding_to_none(device, shape):
    table = torch.randn(30, 5, dtype=torch.float64).to(device)
    index = torch.randint(0, 30, shape, generator=torch.Generator().manual_seed(1)).to(device)
    (one, gradient), (other, wanted) = both(_Rows.apply, lambda t, i: embedding(i, t, padding_idx=0), table, index)
    assert torch.equal(one, other)
    assert torch.allclose(gradient, wanted)
    assert not gradient[0].any()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [1, 63, 700])
def test_sums_of_rows(device, count):
    table = torch.randn(20, 3, dtype=torch.float64).to(device)
    index = torch.randint(0, 20, (count, 6), generator=torch.Generator().manual_seed(1)).to(device)
    (one, gradient), (other, wanted) = both(_Sums.apply, lambda t, i: embedding_bag(i, t, mode="sum"), table, index)
    assert torch.allclose(one, other)
    assert torch.allclose(gradient, wanted)


def test_the_processor_keeps_torchs_own():
    index = torch.tensor([[0, 2], [1, 1]])
    table = torch.randn(3, 2, requires_grad=True)
    rows_of(table, index).sum().backward()
    assert table.grad.tolist() == [[0.0, 0.0], [2.0, 2.0], [1.0, 1.0]]
    assert torch.equal(sums_of(table, index), torch.stack([table[0] + table[2], table[1] * 2]))
