import pytest
import torch
from torch import nn

from encoders.packed_linear import PackedLinear, pack_linears

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch has no oneDNN here")


class Cut(nn.Linear):
    """A layer with a forward of its own, as attention modules have."""


@pytest.mark.parametrize("bias", [True, False])
def test_a_packed_layer_gives_the_same_numbers_for_any_number_of_rows(bias):
    layer = nn.Linear(48, 80, bias=bias)
    packed = PackedLinear(layer, 16)
    with torch.inference_mode():
        for shape in ((1,), (7,), (3, 33)):
            values = torch.randn(*shape, 48)
            torch.testing.assert_close(packed(values), layer(values), rtol=1e-5, atol=1e-5)


def test_only_plain_linear_layers_are_replaced():
    network = nn.Sequential(nn.Linear(4, 4), nn.Sequential(Cut(4, 4), nn.LayerNorm(4), nn.Linear(4, 2)))
    pack_linears(network, 8)
    kinds = [type(module) for module in network.modules() if not isinstance(module, nn.Sequential)]
    assert kinds == [PackedLinear, Cut, nn.LayerNorm, PackedLinear]
