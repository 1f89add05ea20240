"""Pixels of sound pictures: scaled, cut, turned and coloured as they should be."""

import io

import numpy as np
import pytest
from PIL import Image, ImageFile

from encoders.media import decode
from encoders.media.caps import Caps
from encoders.media.decode import picture
from encoders.media.fit import central_box
from encoders.media.reasons import Reason, Refused
from encoders.media.sniff import sniff
from encoders.pixels import Geometry
from tests.encoders.media import makers as m

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def pixels(data: bytes, geometry: Geometry = Geometry(16, 16)) -> np.ndarray:  # noqa: B008
    found = picture(data, sniff(data), geometry, Caps())
    return np.frombuffer(found, np.uint8).reshape(geometry.size, geometry.size, 3).astype(int)


def noise(width: int, height: int) -> Image.Image:
    rng = np.random.default_rng(0)
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8), "RGB")


def reference(image: Image.Image, geometry: Geometry) -> np.ndarray:
    """Scale all, then cut, as torchvision's Resize and CenterCrop."""
    size, kernel = geometry.size, FILTERS[geometry.interpolation]
    if geometry.fit == "squash":
        return np.asarray(image.resize((size, size), kernel)).astype(int)
    short = min(image.size)
    image = image.resize([int(geometry.resize * side / short) for side in image.size], kernel)
    left, top = (round((side - size) / 2.0) for side in image.size)
    return np.asarray(image.crop((left, top, left + size, top + size))).astype(int)


@pytest.mark.parametrize("size", [(60, 40), (41, 97), (36, 36), (300, 31), (7, 500), (3, 2), (1, 1)])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("fit", ["crop", "squash"])
@pytest.mark.parametrize("resize", [32, 37])
def test_scaling_the_part_that_stays_gives_what_cutting_after_gives(size, interpolation, fit, resize):
    """Up to rounding: Pillow rounds between its two passes, whose order may differ where one side is far longer."""
    geometry, image = Geometry(32, resize, interpolation, fit), noise(*size)
    difference = np.abs(pixels(m.saved(image, "PNG"), geometry) - reference(image, geometry))
    assert difference.max() <= 2 or max(size) > 10 * min(size)
    assert difference.mean() < 0.5


def test_a_row_of_pixels_is_cut_before_it_is_scaled():
    left, top, right, bottom = central_box(9_000_000, 1, Geometry(32, 36))
    assert (right - left, bottom - top) == pytest.approx((32 / 36, 32 / 36))
    assert (left + right) / 2 == pytest.approx(4_500_000, abs=1)


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_undone(kind, orientation):
    upright = m.gradient(80, 50)
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # of Image.Transpose; 6 and 8 are each other's
    stored = upright if orientation == 1 else upright.transpose(Image.Transpose(undo[orientation]))
    found = pixels(m.saved(stored, kind, exif=m.exif(orientation)), Geometry(16, 16, fit="squash"))
    assert np.abs(found - reference(upright, Geometry(16, 16, fit="squash"))).max() <= (1 if kind == "PNG" else 12)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "MPO"])
def test_the_first_frame_counts(kind):
    more = [m.plain((0, 0, 200)), m.plain((0, 200, 0))]
    data = m.saved(m.plain((200, 0, 0)), kind, save_all=True, append_images=more)
    assert np.abs(pixels(data) - (200, 0, 0)).max() <= 3


@pytest.mark.parametrize(
    ("image", "kind", "colour"),
    [
        (m.plain((255, 0, 0, 0), mode="RGBA"), "PNG", (255, 255, 255)),
        (m.plain((255, 0, 0, 128), mode="RGBA"), "PNG", (255, 127, 127)),
        (m.plain((0, 0, 0, 51), mode="RGBA"), "WEBP", (204, 204, 204)),
        (m.plain((0, 51), mode="LA"), "PNG", (204, 204, 204)),
        (m.plain(77, mode="L"), "PNG", (77, 77, 77)),
        (m.plain(77, mode="L"), "JPEG", (77, 77, 77)),
        (m.plain(1, mode="1"), "PNG", (255, 255, 255)),
        (m.plain((200, 10, 10)).quantize(), "PNG", (200, 10, 10)),
        (m.plain((255, 0, 0, 0), mode="CMYK"), "JPEG", (0, 255, 255)),
        (Image.fromarray(np.full((30, 40), 0x80FF, np.uint16)), "PNG", (128, 128, 128)),
    ],
)
def test_colours_become_rgb_on_white(image, kind, colour):
    assert np.abs(pixels(m.saved(image, kind)) - colour).max() <= 3


def test_a_transparent_colour_of_a_palette_is_white():
    image = m.plain(1, mode="P")
    image.putpalette([0, 0, 0, 200, 0, 0])
    assert np.all(pixels(m.saved(image, "PNG", transparency=1)) == 255)
    assert np.all(pixels(m.saved(image, "PNG", transparency=0)) == (200, 0, 0))


def test_the_colour_of_what_is_transparent_does_not_bleed():
    image = m.plain((0, 0, 255, 0), (64, 64), "RGBA")
    image.paste((200, 0, 0, 255), (0, 0, 32, 64))
    found = pixels(m.saved(image, "PNG"))
    assert np.all(found[..., 2] <= found[..., 0])


def test_a_large_jpeg_decoded_at_a_part_of_its_size_looks_the_same():
    image = m.gradient(1600, 1200)
    data, geometry = m.saved(image, "JPEG", quality=95), Geometry(64, 72)
    with Image.open(io.BytesIO(data)) as full:
        assert np.abs(pixels(data, geometry) - reference(full, geometry)).mean() < 1.5


def test_caps_hold_at_their_value():
    data = m.saved(m.plain((1, 2, 3), (100, 50)), "PNG")
    assert picture(data, sniff(data), Geometry(4, 4), Caps(pixels=5000))
    with pytest.raises(Refused) as caught:
        picture(data, sniff(data), Geometry(4, 4), Caps(pixels=4999))
    assert caught.value.reason == Reason.TOO_MANY_PIXELS


@pytest.mark.parametrize(
    "options",
    [
        {"lossless": False},
        {"lossless": True},
        {"exif": m.exif(6)},
        {"save_all": True, "append_images": [m.plain((0, 0, 0), (301, 77))]},
    ],
)
def test_the_size_of_a_webp_is_known_before_anything_opens_it(monkeypatch, options):
    data = m.saved(m.gradient(301, 77), "WEBP", **options)
    assert picture(data, sniff(data), Geometry(4, 4), Caps(pixels=301 * 77))
    monkeypatch.setattr(decode, "_open", None)
    with pytest.raises(Refused) as caught:
        picture(data, sniff(data), Geometry(4, 4), Caps(pixels=301 * 77 - 1))
    assert caught.value.reason == Reason.TOO_MANY_PIXELS


def test_nothing_makes_pillow_guess_the_rest_of_a_file():
    assert not ImageFile.LOAD_TRUNCATED_IMAGES
