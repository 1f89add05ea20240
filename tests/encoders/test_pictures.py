import hashlib
from itertools import count

import numpy as np
import pytest

from data.artifacts import OutputDir
from data.context import RunContext
from encoders import pictures
from encoders.media.listing import Media
from encoders.media.reasons import Reason
from encoders.pictures import albums, encode_pictures
from encoders.pixels import Picture

BLANK = np.zeros((2, 2, 3), np.uint8)


def shade(name):
    """A picture's grey value: the number in its name."""
    return int("".join(filter(str.isdigit, name)) or 0)


class Mean:
    """Vectors that say the grey value; counts what it is given."""

    identity = {"modality": "image", "model": "mean"}  # noqa: RUF012
    dim = 2

    def __init__(self):
        self.batches = []

    def encode(self, frames):
        self.batches.append(len(frames))
        angle = frames.reshape(len(frames), -1).mean(axis=1) / 200
        return np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)


class Reader:
    """Decodes names; those in `bad` have no pixels. Counts what it was asked for."""

    def __init__(self, bad=(), dies_after=None):
        self.bad, self.dies_after, self.asked = dict(bad), dies_after, []

    def __call__(self, names):
        for name in names:
            if self.dies_after is not None and len(self.asked) >= self.dies_after:
                raise KeyboardInterrupt
            self.asked.append(name)
            if name in self.bad:
                yield Picture(name, reason=self.bad[name])
            else:
                yield Picture(name, np.full((1, 2, 2, 3), shade(name), np.uint8))


def listed(*names, same=()):
    """Media of `names`; those in `same` share the content of the first of them."""
    found = []
    for name in names:
        content = same[0] if name in same else name
        found.append(Media(name, hashlib.sha256(content.encode()).hexdigest(), 9))
    return found


@pytest.fixture
def new_output(tmp_path):
    """`new_output() -> OutputDir` in a folder of its own."""
    numbers = count()

    def make():
        folder = tmp_path / str(next(numbers))
        (folder / "out").mkdir(parents=True)
        return OutputDir(folder / "out", folder / "work", "k")

    return make


@pytest.fixture
def encode(new_output, monkeypatch):
    monkeypatch.setattr(pictures, "SHARD", 4)

    def make(media, reader, encoder=None, out=None):
        out = out or new_output()
        return encode_pictures("image", encoder or Mean(), media, reader, BLANK, out, RunContext(threads=1))

    return make


def test_every_path_gets_the_vector_of_its_own_content(encode):
    names = [f"p{number}.jpg" for number in range(11)]
    seen = encode(listed(*names), Reader())
    assert seen.vectors.shape == (11, 2)
    for name in names:
        angle = np.arctan2(*seen.vectors[seen.row[name]][::-1])
        assert angle * 200 == pytest.approx(shade(name), abs=0.01)
    assert not seen.reasons


def test_equal_contents_are_read_once(encode):
    reader = Reader()
    seen = encode(listed("a1", "b2", "c3", same=("a1", "c3")), reader)
    assert sorted(reader.asked) == ["a1", "b2"]
    assert seen.row["a1"] == seen.row["c3"]
    assert len(seen.vectors) == 2


def test_what_cannot_be_read_is_set_aside_with_its_reason(encode):
    media = [*listed("a1", "b2", "c3"), Media("gone", reason=Reason.NOT_FOUND)]
    seen = encode(media, Reader({"b2": Reason.BROKEN}))
    assert dict(seen.reasons) == {"b2": "broken", "gone": "not_found"}
    assert set(seen.row) == {"a1", "c3"}
    assert len(seen.vectors) == 2
    assert np.isfinite(seen.vectors).all()


def test_a_killed_run_goes_on_at_its_last_shard(encode, new_output):
    media, out = listed(*(f"p{number}" for number in range(10))), new_output()
    with pytest.raises(KeyboardInterrupt):
        encode(media, Reader(dies_after=7), out=out)
    again = Reader()
    seen = encode(media, again, out=out)
    assert len(again.asked) == 6
    np.testing.assert_array_equal(seen.vectors, encode(media, Reader()).vectors)


def test_a_failure_that_may_pass_is_tried_again(encode, new_output):
    out = new_output()
    assert encode(listed("a1"), Reader({"a1": Reason.TIMEOUT}), out=out).reasons == {"a1": "timeout"}
    assert encode(listed("a1"), Reader(), out=out).row == {"a1": 0}
    assert encode(listed("b2"), Reader({"b2": Reason.BROKEN}), out=out).reasons == {"b2": "broken"}
    asked = Reader()
    encode(listed("b2"), asked, out=out)
    assert asked.asked == []


def test_another_encoder_uses_no_shard_of_this_one(encode, new_output):
    out, other = new_output(), Mean()
    encode(listed("a1"), Reader(), out=out)
    other.identity = {"modality": "image", "model": "other"}
    asked = Reader()
    encode(listed("a1"), asked, other, out)
    assert asked.asked == ["a1"]


def test_several_pictures_of_a_product_are_averaged(encode):
    seen = encode(listed("a10", "b50", "c90"), Reader({"c90": Reason.BROKEN}))
    source = albums(seen, [("a10", "b50"), ("b50", "c90"), ("c90",), (), ("b50",)])
    assert source.rows[2] == source.rows[3] == -1
    assert source.rows[1] == source.rows[4]
    expected = seen.vectors[[seen.row["a10"], seen.row["b50"]]].mean(axis=0)
    np.testing.assert_allclose(source.vectors[source.rows[0]], expected)
