"""What every source of image models hands over: a network and what it wants to see."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from encoders.pixels import Geometry, Normalisation


@dataclass(frozen=True)
class ImageNetwork:
    """`module` maps normalised pixels float (n, 3, size, size) to features (n, dim), in evaluation mode.

    `revision` is the sha256 of the weights as they were read, `licence` what the model card says.
    """

    module: nn.Module
    geometry: Geometry
    normalisation: Normalisation
    revision: str
    licence: str
