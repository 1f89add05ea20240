"""Pictures between decoding and encoding: what a network wants to see, and what decoding a file gave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
"""RGB frames, uint8 (F, size, size, 3); a picture has one frame."""


@dataclass(frozen=True)
class Geometry:
    """How a picture becomes square: `fit` "crop" scales its short side to `resize` pixels and cuts out the centre of
    `size`; "squash" scales both sides to `size`."""

    size: int
    resize: int
    interpolation: Literal["bilinear", "bicubic"] = "bicubic"
    fit: Literal["crop", "squash"] = "crop"

    def __str__(self) -> str:
        scaled = f"short side to {self.resize}, centre" if self.fit == "crop" else "both sides to"
        return f"{self.interpolation}, {scaled} {self.size}"


@dataclass(frozen=True)
class Normalisation:
    """(x / 255 - mean) / std by colour channel, done where the network runs."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __str__(self) -> str:
        return f"mean {self.mean}, std {self.std}"


@dataclass(frozen=True)
class Picture:
    """A decoded file: its pixels, or the reason why there are none."""

    name: str
    pixels: Pixels | None = None
    reason: str | None = None
