"""The decoding process from the inside, and what passes over its line."""

import resource
import socket
import threading
import time

import pytest

from encoders.media import child, decode, wire
from encoders.media.caps import Caps
from encoders.media.reasons import Reason
from encoders.media.sniff import Kind
from encoders.media.warm import warm_up
from encoders.media.worker import Worker
from encoders.pixels import Geometry
from tests.encoders.media import makers as m

GEOMETRY, CAPS = Geometry(8, 8), Caps(seconds=7)
JPEG = m.saved(m.gradient(20, 20), "JPEG")


def hoard(*words):
    raise MemoryError


def test_each_file_has_its_processor_time_and_a_hang_up_ends_it(monkeypatch):
    limits = []
    monkeypatch.setattr(resource, "setrlimit", lambda which, values: limits.append((which, values)))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        serving = threading.Thread(target=child.serve, args=(theirs, GEOMETRY, CAPS))
        serving.start()
        assert wire.receive(ours, 0).word == wire.READY
        for data, word in ((JPEG, wire.PIXELS), (JPEG[:-9], Reason.BROKEN), (JPEG, wire.PIXELS)):
            wire.send(ours, wire.Message(Kind.JPEG, 0, data))
            assert wire.receive(ours, 8 * 8 * 3).word == word
        ours.close()
        serving.join(10)
        assert not serving.is_alive()
    assert [which for which, _ in limits] == [resource.RLIMIT_CPU] * 3
    assert 6 < limits[-1][1][0] - time.process_time() <= 8


def test_too_little_memory_is_an_answer(monkeypatch):
    monkeypatch.setattr(decode, "picture", hoard)
    assert child.answer(wire.Message(Kind.PNG, 0, b""), GEOMETRY, CAPS).word == Reason.MEMORY


def test_limits_of_the_user_hold_where_they_are_lower(monkeypatch):
    taken = {}
    monkeypatch.setattr(resource, "getrlimit", lambda which: (0, 100 if which == resource.RLIMIT_AS else -1))
    monkeypatch.setattr(resource, "setrlimit", lambda which, values: taken.update({which: values}))
    monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", None)
    child.confine(CAPS)
    assert taken[resource.RLIMIT_AS] == (100, 100)
    assert taken[resource.RLIMIT_NOFILE] == (3, 3)
    assert taken[resource.RLIMIT_FSIZE] == taken[resource.RLIMIT_CORE] == (0, 0)


def test_an_orphan_ends_by_itself():
    worker = Worker(GEOMETRY, CAPS)
    worker.decode(JPEG, Kind.JPEG, 0)
    process = worker._process
    process._line.close()
    assert process._running.wait(20) == 0
    worker.close()


def test_a_first_file_of_each_kind_decodes():
    warm_up(films=False)
    pytest.importorskip("av", reason="films need the extra `video`")
    warm_up(films=True)


def test_a_message_is_bounded_in_bytes_and_time():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire.send(ours, wire.Message("jpeg", 3, b"abc"))
        assert wire.receive(theirs, 3) == wire.Message("jpeg", 3, b"abc")
        wire.send(ours, wire.Message("jpeg", 3, b"abcd"))
        with pytest.raises(wire.Broken):
            wire.receive(theirs, 3)
        with pytest.raises(TimeoutError):
            wire.receive(ours, 3, time.monotonic() + 0.05)
        with pytest.raises(TimeoutError):
            wire.send(ours, wire.Message("jpeg", 0, bytes(1 << 24)), time.monotonic() + 0.05)
        with pytest.raises(TimeoutError):
            wire.send(ours, wire.Message("jpeg"), time.monotonic() - 1)
        theirs.close()
        with pytest.raises(wire.Broken):
            wire.send(ours, wire.Message("jpeg"))


def test_every_reason_fits_into_a_message():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for reason in (Reason.TOO_MANY_PIXELS, Reason.UNKNOWN_CODEC, Reason.BROKEN, Reason.MEMORY, Reason.TOO_LONG):
            wire.send(ours, wire.Message(reason))
            assert wire.receive(theirs, 0).word == reason
