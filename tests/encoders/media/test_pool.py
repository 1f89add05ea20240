"""Decoding in processes that hang, die and lie: each file gets its reason, and the others come through."""

import itertools
import time
from pathlib import Path

import numpy as np
import pytest

from data.errors import BadDataError, SystemStateError, UsageError
from encoders.media import worker as worker_module
from encoders.media.caps import Caps
from encoders.media.listing import listing
from encoders.media.pool import Decoder
from encoders.media.reasons import Reason
from encoders.media.sniff import Kind
from encoders.media.worker import Worker
from encoders.pixels import Geometry, Picture
from tests.encoders.media import makers as m

GEOMETRY = Geometry(16, 18)
CAPS = Caps(seconds=2, memory=400 << 20)
JPEG = m.saved(m.gradient(50, 40), "JPEG")


def told(order: str) -> bytes:
    return m.with_segment(JPEG, 0xFE, f"DO {order}".encode())


@pytest.fixture
def unruly(monkeypatch):
    monkeypatch.setattr(worker_module, "PROGRAM", "tests.encoders.media.unruly")


OUTCOMES = {
    "CRASH": Reason.CRASHED,
    "EXIT": Reason.CRASHED,
    "SPIN": Reason.TIMEOUT,
    "SLEEP": Reason.TIMEOUT,
    "HOARD": Reason.MEMORY,
    "SAY LITTLE": Reason.CRASHED,
    "SAY MUCH": Reason.CRASHED,
    "SAY NONE": Reason.CRASHED,
    "SAY NONSENSE": Reason.CRASHED,
    "OPEN": None,
    "NOTHING": None,
}


@pytest.fixture(scope="module")
def broken(tmp_path_factory) -> dict[str, Picture]:
    """One run over a file for each of the orders, with a sound one after each."""
    root = tmp_path_factory.mktemp("broken")
    names = [m.put(root, order, told(order)) for order in OUTCOMES]
    names += [m.put(root, f"after {order}", JPEG) for order in OUTCOMES]
    with pytest.MonkeyPatch.context() as patch, Decoder(root, GEOMETRY, CAPS, workers=1) as decoder:
        patch.setattr(worker_module, "PROGRAM", "tests.encoders.media.unruly")
        mixed = [name for pair in zip(names, names[len(OUTCOMES) :], strict=False) for name in pair]
        return {picture.name: picture for picture in decoder.pictures(mixed)}


@pytest.mark.parametrize(("order", "reason"), OUTCOMES.items())
def test_a_broken_process_costs_one_file_and_is_replaced(broken, order, reason):
    assert broken[order].reason == reason
    assert broken[f"after {order}"].reason is None
    assert broken[f"after {order}"].pixels.shape == (1, 16, 16, 3)


def test_a_file_is_not_blamed_for_the_one_before_it(unruly, tmp_path):
    names = [m.put(tmp_path, "0.jpg", told("POISON")), m.put(tmp_path, "1.jpg", JPEG), m.put(tmp_path, "2.jpg", JPEG)]
    with Decoder(tmp_path, GEOMETRY, CAPS, workers=1) as decoder:
        assert [picture.reason for picture in decoder.pictures(names)] == [None, None, None]


def test_processor_time_ends_a_file_too(unruly):
    """Where the wall clock is far off, as on a process that the watcher has lost."""
    worker = Worker(GEOMETRY, Caps(seconds=1))
    process = worker._ready(Kind.JPEG)
    process._caps = Caps(seconds=60)
    began = time.monotonic()
    with pytest.raises(worker_module.Refused) as caught:
        process.decode(told("SPIN"), Kind.JPEG, 0)
    worker.close()
    assert caught.value.reason == Reason.TIMEOUT
    assert time.monotonic() - began < 20


def test_a_process_is_replaced_after_many_files(monkeypatch, tmp_path):
    monkeypatch.setattr(worker_module, "_FILES_A_PROCESS", 2)
    worker, seen = Worker(GEOMETRY, CAPS), []
    for _ in range(5):
        worker.decode(JPEG, Kind.JPEG, 0)
        seen.append(worker._process._running.pid)
    worker.close()
    assert [len(list(group)) for _, group in itertools.groupby(seen)] == [2, 2, 1]


def test_order_is_kept_and_only_a_few_are_made_ahead(tmp_path):
    m.put(tmp_path, "a.jpg", JPEG)
    taken = []

    def names():
        for index in range(40):
            taken.append(index)
            yield "a.jpg" if index % 5 else f"{index}.jpg"

    with Decoder(tmp_path, GEOMETRY, CAPS, workers=2) as decoder:
        for index, picture in enumerate(decoder.pictures(names())):
            assert picture.reason == (None if index % 5 else Reason.NOT_FOUND)
            assert len(taken) <= index + 6


def test_leaving_early_leaves_no_process(tmp_path):
    m.put(tmp_path, "a.jpg", JPEG)
    with Decoder(tmp_path, GEOMETRY, CAPS, workers=2) as decoder:
        assert next(decoder.pictures(itertools.repeat("a.jpg"))).reason is None
        running = [worker._process._running for worker in decoder._workers if worker._process]
    assert running
    assert all(process.returncode is not None for process in running)


def test_pixels_depend_neither_on_the_worker_nor_on_the_neighbours(tmp_path):
    names = [m.put(tmp_path, f"{index}.png", m.saved(m.gradient(30 + index, 40), "PNG")) for index in range(6)]

    def run(workers, names):
        with Decoder(tmp_path, GEOMETRY, CAPS, workers) as decoder:
            return {picture.name: picture.pixels.tobytes() for picture in decoder.pictures(names)}

    assert run(1, names) == run(2, names[::-1])


def test_a_file_that_is_no_longer_the_one_listed_is_refused(tmp_path):
    names = [m.put(tmp_path, "a.jpg", JPEG), m.put(tmp_path, "b.jpg", JPEG)]
    hashes = {media.name: media.sha256 for media in listing(tmp_path, names, CAPS, 1)}
    m.put(tmp_path, "b.jpg", m.saved(m.gradient(50, 41), "JPEG"))
    with Decoder(tmp_path, GEOMETRY, CAPS, 1) as decoder:
        given = [picture.reason for picture in decoder.pictures(names, hashes=hashes)]
    assert given == [None, Reason.CHANGED]


def test_films_and_pictures_in_one_run(tmp_path):
    pytest.importorskip("av", reason="films need the extra `video`")
    names = [m.put(tmp_path, "a.jpg", JPEG), m.put(tmp_path, "a.mp4", m.film([(200, 0, 0)] * 4)), "a.jpg"]
    with Decoder(tmp_path, GEOMETRY, CAPS, workers=1) as decoder:
        assert [picture.pixels.shape[0] for picture in decoder.pictures(names, frames=3)] == [1, 3, 1]
        assert [picture.reason for picture in decoder.pictures(names)] == [None, Reason.NOT_A_PICTURE, None]


def test_a_film_without_the_extra_names_it(monkeypatch, tmp_path):
    monkeypatch.setattr(worker_module.importlib.util, "find_spec", lambda name: None)
    name = m.put(tmp_path, "a.mp4", b"\0\0\0\x18ftypisom\0\0\0\0isommp42")
    with Decoder(tmp_path, GEOMETRY, CAPS, 1) as decoder, pytest.raises(SystemStateError, match=r"\[video\]"):
        list(decoder.pictures([name], frames=1))


def test_a_process_that_cannot_start_is_said_with_its_cause(monkeypatch, tmp_path):
    monkeypatch.setattr(worker_module, "PROGRAM", "encoders.media.gone")
    m.put(tmp_path, "a.jpg", JPEG)
    decoder = Decoder(tmp_path, GEOMETRY, CAPS, 1)
    with decoder, pytest.raises(SystemStateError, match=r"ended with code 1 .*No module named encoders\.media\.gone"):
        list(decoder.pictures(["a.jpg"]))


def test_wrong_settings_are_refused(tmp_path):
    with pytest.raises(BadDataError, match="expected a folder"):
        Decoder(tmp_path / "gone", GEOMETRY, CAPS, 1)
    with pytest.raises(UsageError, match="size <= resize"):
        Decoder(tmp_path, Geometry(20, 10), CAPS, 1)
    with pytest.raises(UsageError, match="at least one worker"):
        Decoder(tmp_path, GEOMETRY, CAPS, 0)
    with pytest.raises(UsageError, match="cap on pixels"):
        Caps(pixels=0)
    with pytest.raises(UsageError, match="bytes of memory"):
        Caps(memory=1 << 20)
    with Decoder(tmp_path, GEOMETRY, CAPS, 1) as decoder, pytest.raises(UsageError, match="frames a film"):
        list(decoder.pictures([], frames=65))


def test_only_the_file_s_bytes_reach_the_process(tmp_path, monkeypatch):
    """Neither its name nor our environment."""
    monkeypatch.setenv("SECRET_OF_OURS", "x")
    worker = Worker(GEOMETRY, CAPS)
    worker.decode(JPEG, Kind.JPEG, 0)
    environment = Path(f"/proc/{worker._process._running.pid}/environ").read_bytes()
    worker.close()
    assert b"SECRET_OF_OURS" not in environment


def test_pixels_are_those_of_the_picture(tmp_path):
    m.put(tmp_path, "a.png", m.saved(m.plain((10, 20, 30)), "PNG"))
    with Decoder(tmp_path, GEOMETRY, CAPS, 1) as decoder:
        (picture,) = decoder.pictures(["a.png"])
    assert picture.pixels.dtype == np.uint8
    assert np.all(picture.pixels == (10, 20, 30))
