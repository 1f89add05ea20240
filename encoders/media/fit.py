"""From a decoded picture to square RGB bytes."""

from __future__ import annotations

from PIL import Image

from encoders.pixels import Geometry

_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
_WHITE = (255, 255, 255)
Box = tuple[float, float, float, float]


def fitted(image: Image.Image, geometry: Geometry) -> bytes:
    """RGB bytes (size, size, 3) of `image` on white.

    Only the part that stays is ever scaled: scaling all and cutting after, as the formula reads, would make billions of
    pixels of a picture of one row. The filter still sees what lies outside the cut, so the pixels are the same up to
    rounding.
    """
    image = _coloured(image)
    box = (0, 0, *image.size) if geometry.fit == "squash" else central_box(*image.size, geometry)
    image = image.resize((geometry.size, geometry.size), _FILTERS[geometry.interpolation], box=box)
    return _on_white(image).tobytes()


def central_box(width: int, height: int, geometry: Geometry) -> Box:
    """The part of a (width, height) picture, in its own pixels, that is left of it by `geometry` of fit "crop".

    Rounds as torchvision's Resize and CenterCrop do: the long side down, the cut's corner to the nearest even.
    """
    short, size = min(width, height), geometry.size
    scaled = [side * geometry.resize // short for side in (width, height)]
    scales = [side / new for side, new in zip((width, height), scaled, strict=True)]
    left, top = (round((new - size) / 2) for new in scaled)
    right, bottom = min((left + size) * scales[0], width), min((top + size) * scales[1], height)
    return left * scales[0], top * scales[1], right, bottom


def _coloured(image: Image.Image) -> Image.Image:
    """RGB, or RGBA where anything is transparent. 16-bit greys lose their lower 8 bits: Pillow would clip instead."""
    if image.mode.startswith("I"):
        image = image.point(lambda value: value * (1 / 256)).convert("L")
    mode = "RGBA" if image.has_transparency_data else "RGB"
    return image if image.mode == mode else image.convert(mode)


def _on_white(image: Image.Image) -> Image.Image:
    """RGB; done after scaling, where Pillow weighs colours by their opacity, so it costs the few pixels that stay."""
    if image.mode == "RGB":
        return image
    page = Image.new("RGB", image.size, _WHITE)
    page.paste(image, mask=image.getchannel("A"))
    return page
