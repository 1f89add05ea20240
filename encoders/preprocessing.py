"""What a network wants to see, read from the records that `transformers` and `timm` keep beside their weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from data.errors import UsageError
from encoders.pixels import Geometry, Normalisation

Wanted = tuple[Geometry, Normalisation]
"""The shape of pictures, and the scaling of their values."""

_RESAMPLE: dict[int, Literal["bilinear", "bicubic"]] = {2: "bilinear", 3: "bicubic"}  # numbers are Pillow's


def of_processor(record: Mapping[str, Any]) -> Wanted:
    """The `preprocessor_config.json` of a transformers model. Raises UsageError for what Geometry cannot say."""
    steps = record.get("do_resize", True) and record.get("do_rescale", True) and not record.get("do_pad")
    bytes_only = math.isclose(record.get("rescale_factor", 1 / 255), 1 / 255, rel_tol=1e-3)
    if not steps or not bytes_only or record.get("resample") not in _RESAMPLE:
        raise _unknown(record)
    geometry = _geometry(record, _RESAMPLE[record["resample"]])
    if not record.get("do_normalize", True):
        return geometry, Normalisation((0, 0, 0), (1, 1, 1))
    return geometry, Normalisation(_colours(record["image_mean"]), _colours(record["image_std"]))


def of_timm(record: Mapping[str, Any]) -> Wanted:
    """The `pretrained_cfg` of a timm model. Raises UsageError for what Geometry cannot say."""
    _, height, width = record["input_size"]
    share, mode = float(record.get("crop_pct") or 0.875), record.get("crop_mode") or "center"
    interpolation = record.get("interpolation", "bicubic")
    square = height == width and (mode == "center" or (mode == "squash" and share == 1))
    if not square or interpolation not in _RESAMPLE.values():
        raise _unknown(record)
    fit: Literal["crop", "squash"] = "squash" if mode == "squash" else "crop"
    geometry = Geometry(height, math.floor(height / share), interpolation, fit)
    return geometry, Normalisation(_colours(record["mean"]), _colours(record["std"]))


def _geometry(record: Mapping[str, Any], interpolation: Literal["bilinear", "bicubic"]) -> Geometry:
    crops, share = record.get("do_center_crop", False), record.get("crop_pct")
    short = _short_side(record["size"], crops)
    if short is None:
        size = _side(record["size"])
        if crops and _side(record.get("crop_size", size)) != size:
            raise _unknown(record)
        return Geometry(size, size, interpolation, "squash")
    if share:  # ConvNeXt: the size is that of the cut, and large pictures are not cut
        scaled = int(short / share)
        return (
            Geometry(short, scaled, interpolation) if short < 384 else Geometry(short, short, interpolation, "squash")
        )
    if not crops:
        raise _unknown(record)
    return Geometry(_side(record.get("crop_size", short)), short, interpolation)


def _short_side(size: int | Mapping[str, int], crops: bool) -> int | None:
    """Pixels the short side is scaled to; None when both sides are."""
    if isinstance(size, int):  # records of old
        return size if crops else None
    return size.get("shortest_edge")


def _side(size: int | Mapping[str, int]) -> int:
    if isinstance(size, int):
        return size
    if size.get("height") is None or size.get("height") != size.get("width"):
        raise _unknown(size)
    return size["height"]


def _colours(values: float | Sequence[float]) -> tuple[float, float, float]:
    red, green, blue = [values] * 3 if isinstance(values, float | int) else values
    return float(red), float(green), float(blue)


def _unknown(record: Mapping[str, Any]) -> UsageError:
    return UsageError(
        "expected pictures scaled (bilinear or bicubic) and cut to a square, values divided by 255, then normalised; "
        f"the model wants {dict(record)}: choose another one"
    )
