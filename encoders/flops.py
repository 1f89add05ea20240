"""Floating-point operations of one forward pass: what utilisation of a device (MFU) is counted on.

A multiplication and an addition are two. Counted are convolutions, matrix products and attention, which is all but a
few percent of these networks; padding and recomputation would count as well, so give the item its own shape.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from encoders.image import ImageEncoder


def flops(module: nn.Module, *inputs: torch.Tensor, **named: torch.Tensor) -> int:
    """Operations of one pass of an uncompiled `module` over `inputs`, run once where they lie."""
    counter: Any = FlopCounterMode(display=False)
    with (
        torch.inference_mode(),
        sdpa_kernel(SDPBackend.MATH),
        counter,
    ):  # fused attention is not counted on every device
        module(*inputs, **named)
    total: int = counter.get_total_flops()
    return total


def flops_per_item(encoder: ImageEncoder) -> int:
    """Operations to encode one picture, from bytes to its unit vector."""
    size = encoder.geometry.size
    return flops(encoder.features, torch.zeros(1, size, size, 3, dtype=torch.uint8, device=encoder.device))
