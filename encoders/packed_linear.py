"""Linear layers on the CPU with weights laid out once for oneDNN, instead of at every call or not at all."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PackedLinear(nn.Module):
    """y = x W' + b in float32, for inference: the weight is reordered for products with about `rows` rows.

    It uses the operators that torch.compile itself puts in the place of frozen linear layers.
    """

    def __init__(self, layer: nn.Linear, rows: int) -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), rows)
        self.bias = layer.bias

    def forward(self, values: Tensor) -> Tensor:
        """Float32 (..., in) to (..., out)."""
        product: Tensor = torch.ops.mkldnn._linear_pointwise(values, self.weight, self.bias, "none", [], "")
        return product


def pack_linears(network: nn.Module, rows: int) -> None:
    """Replace every plain linear layer below `network`; nothing changes where torch was built without oneDNN."""
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return
    for module in list(network.modules()):
        for name, layer in list(module.named_children()):
            if type(layer) is nn.Linear:
                setattr(module, name, PackedLinear(layer, rows))
