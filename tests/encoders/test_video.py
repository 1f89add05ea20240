import numpy as np
import pytest

from data.errors import UsageError
from encoders.base import unit
from encoders.image import load_image_encoder
from encoders.video import VideoEncoder, side_by_side
from tests.fixtures import tiny_vision
from tests.fixtures.tiny_vision import pictures


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return load_image_encoder(tiny_vision.write_dinov2(tmp_path_factory.mktemp("dinov2")))


@pytest.fixture
def films():
    return pictures(12).reshape(3, 4, 32, 32, 3)


def test_a_film_is_the_mean_of_its_frames(images, films):
    found = VideoEncoder(images).encode(films)
    frames = images.encode(films.reshape(12, 32, 32, 3)).reshape(3, 4, -1)
    np.testing.assert_allclose(found, unit(frames.mean(axis=1)), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)


def test_frames_that_are_not_there_count_for_nothing(images, films):
    present = np.array([[True, True, False, False], [True] * 4, [False] * 4])
    found = VideoEncoder(images).encode(films, present)
    np.testing.assert_allclose(found[0], unit(images.encode(films[0, :2]).mean(axis=0)), atol=1e-6)
    np.testing.assert_allclose(found[1], VideoEncoder(images).encode(films)[1], atol=1e-6)
    assert not found[2].any()


def test_films_of_several_lengths_side_by_side(images, films):
    stacked, present = side_by_side([films[0], films[1][:1], films[2][:3]], 4)
    assert present.sum(axis=1).tolist() == [4, 1, 3]
    assert stacked.shape == films.shape
    found = VideoEncoder(images).encode(stacked, present)
    np.testing.assert_allclose(found[1], images.encode(films[1][:1])[0], atol=1e-6)
    with pytest.raises(UsageError, match="at most 2 frames"):
        side_by_side([films[0]], 2)


def test_identity_tells_a_film_from_a_picture_and_follows_the_frames(images):
    four, two = VideoEncoder(images, 4), VideoEncoder(images, 2)
    assert four.identity["modality"] == "video"
    assert {key for key in four.identity if four.identity[key] != two.identity[key]} == {"preprocessing"}
    assert four.identity["revision"] == images.identity["revision"]


def test_another_number_of_frames_is_refused(images, films):
    with pytest.raises(UsageError, match="2 frames a film"):
        VideoEncoder(images, 2).encode(films)
    with pytest.raises(UsageError, match="at least one"):
        VideoEncoder(images, 0)
