import pytest
import torch

from encoders.flops import flops, flops_per_item
from encoders.image import load_image_encoder
from encoders.lite0 import PACKAGED_MODEL
from tests.fixtures import tiny_vision


def test_a_matrix_product_is_two_operations_a_multiplication():
    assert flops(torch.nn.Linear(8, 16), torch.zeros(3, 8)) == 2 * 3 * 8 * 16


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_vision_transformer_is_counted_with_its_attention(device, tmp_path):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    tokens, width, inner, layers = 17, 32, 64, 2
    patches = 16 * (8 * 8 * 3) * width
    linear = tokens * (4 * width * width + 2 * width * inner)
    attention = 2 * tokens * tokens * width
    projection = width * 16
    encoder = load_image_encoder(tiny_vision.write_clip(tmp_path), device)
    assert flops_per_item(encoder) == 2 * (patches + layers * (linear + attention) + projection)


def test_the_packaged_network_is_counted_convolution_by_convolution():
    encoder = load_image_encoder(PACKAGED_MODEL)
    products = []

    def counted(convolution, _, found):
        products.append(found[0].numel() * convolution.weight[0].numel())

    for module in encoder.features.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(counted)
    total = flops_per_item(encoder)
    assert total == 2 * sum(products)
    assert total == pytest.approx(2 * 407e6, rel=0.1)  # the figure its authors state
