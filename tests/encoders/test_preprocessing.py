import pytest

from data.errors import UsageError
from encoders.pixels import Geometry, Normalisation
from encoders.preprocessing import of_processor, of_timm

HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "resample": 3}
SQUARE = {"height": 224, "width": 224}

RECORDS = {
    "clip": (
        {"size": {"shortest_edge": 224}, "do_center_crop": True, "crop_size": SQUARE, "rescale_factor": 1 / 255},
        Geometry(224, 224),
    ),
    "clip of old": ({"size": 224, "do_center_crop": True, "crop_size": 224}, Geometry(224, 224)),
    "siglip": ({"size": SQUARE, "do_center_crop": None}, Geometry(224, 224, fit="squash")),
    "vit of old": ({"size": 224, "resample": 2}, Geometry(224, 224, "bilinear", "squash")),
    "dinov2": (
        {"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": SQUARE},
        Geometry(224, 256),
    ),
    "convnext": ({"size": {"shortest_edge": 224}, "crop_pct": 0.875}, Geometry(224, 256)),
    "convnext, large": (
        {"size": {"shortest_edge": 384}, "crop_pct": 0.875},
        Geometry(384, 384, fit="squash"),
    ),
}


@pytest.mark.parametrize("name", RECORDS)
def test_the_records_of_known_models_are_understood(name):
    record, geometry = RECORDS[name]
    assert of_processor(HALF | record) == (geometry, Normalisation((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)))


def test_values_are_normalised_as_the_record_says():
    colours = {"image_mean": [0.1, 0.2, 0.3], "image_std": 0.4, "size": 224}
    assert of_processor(HALF | colours)[1] == Normalisation((0.1, 0.2, 0.3), (0.4, 0.4, 0.4))
    assert of_processor(HALF | {"size": 224, "do_normalize": False})[1] == Normalisation((0, 0, 0), (1, 1, 1))


@pytest.mark.parametrize(
    "change",
    [
        {"resample": 0},
        {"resample": None},
        {"do_resize": False},
        {"do_rescale": False},
        {"do_pad": True},
        {"rescale_factor": 1 / 127.5},
        {"size": {"height": 224, "width": 196}},
        {"size": {"shortest_edge": 224}},
        {"size": {"longest_edge": 224}},
        {"size": {"height": 346, "width": 346}, "do_center_crop": True, "crop_size": 289},
        {"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": {"height": 224, "width": 196}},
    ],
)
def test_what_a_geometry_cannot_say_is_refused(change):
    with pytest.raises(UsageError, match="choose another one"):
        of_processor(HALF | {"size": 224} | change)


def test_records_of_timm():
    record = {"input_size": [3, 224, 224], "mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic"}
    half = Normalisation((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    assert of_timm(record | {"crop_pct": 0.875}) == (Geometry(224, 256), half)
    assert of_timm(record | {"crop_pct": 0.9, "crop_mode": "center"})[0] == Geometry(224, 248)
    assert of_timm(record | {"crop_pct": 1.0, "crop_mode": "squash"})[0] == Geometry(224, 224, fit="squash")
    for change in (
        {"crop_pct": 0.9, "crop_mode": "squash"},
        {"input_size": [3, 224, 196]},
        {"interpolation": "hamming"},
    ):
        with pytest.raises(UsageError, match="choose another one"):
            of_timm(record | change)
