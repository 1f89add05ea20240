"""Contents of files by name, and the opening of names."""

import errno
import hashlib
import os
from pathlib import Path

import pytest

from data.errors import BadDataError
from encoders.media import listing as listing_module
from encoders.media import paths
from encoders.media.caps import Caps
from encoders.media.keep import keep
from encoders.media.listing import Media, listing
from encoders.media.paths import Root
from encoders.media.reasons import Reason, Refused
from tests.encoders.media import makers as m

CAPS = Caps(bytes=100)


def test_distinct_names_once_in_order_with_their_hash(tmp_path):
    names = [m.put(tmp_path, f"a/{index}.jpg", bytes([index % 3]) * 10) for index in range(200)]
    found = listing(tmp_path, [*names, *names, "gone.jpg"], CAPS, threads=3)
    assert [media.name for media in found] == [*names, "gone.jpg"]
    assert found[5] == Media("a/5.jpg", hashlib.sha256(b"\2" * 10).hexdigest(), 10)
    assert len({media.sha256 for media in found[:-1]}) == 3
    assert found[-1] == Media("gone.jpg", reason=Reason.NOT_FOUND)


def test_sizes_are_capped_at_their_value(tmp_path):
    names = [m.put(tmp_path, f"{size}.jpg", bytes(size)) for size in (0, 1, 100, 101)]
    reasons = [media.reason for media in listing(tmp_path, names, CAPS, 1)]
    assert reasons == [Reason.EMPTY, None, None, Reason.TOO_LARGE]
    with pytest.raises(BadDataError, match="expected a folder"):
        listing(tmp_path / "0.jpg", [], CAPS, 1)


@pytest.mark.parametrize("count", [101, 5000])
def test_a_file_that_grows_while_it_is_read_does_not_pass_the_cap(tmp_path, monkeypatch, count):
    m.put(tmp_path, "a.jpg", bytes(count))
    for module in (paths, listing_module):
        monkeypatch.setattr(module, "check_size", lambda descriptor, limit: 1)
    (media,) = listing(tmp_path, ["a.jpg"], CAPS, 1)
    assert media == Media("a.jpg", reason=Reason.TOO_LARGE)
    with Root(tmp_path) as root, pytest.raises(Refused, match="more bytes"):
        root.read("a.jpg", CAPS.bytes)


def test_what_is_put_in_place_after_the_look_is_not_followed(tmp_path, monkeypatch):
    """The race that a look at the name alone loses: here every look sees a plain file or folder."""
    m.put(tmp_path, "outside/secret.jpg", b"secret")
    m.put(tmp_path, "root/plain.jpg", b"plain")
    (tmp_path / "root/link.jpg").symlink_to("../outside/secret.jpg")
    (tmp_path / "root/folder").symlink_to("../outside")
    os.mkfifo(tmp_path / "root/pipe.jpg")
    look = os.stat

    def deceived(name, *, dir_fd=None, follow_symlinks=True):
        return look("plain.jpg" if name == "pipe.jpg" else name, dir_fd=dir_fd)

    with Root(tmp_path / "root") as root, monkeypatch.context() as patch:
        patch.setattr(os, "stat", deceived)
        assert root.read("plain.jpg", 100) == b"plain"
        given = {name: _reason(root, name) for name in ("link.jpg", "folder/secret.jpg", "pipe.jpg")}
    assert list(given.values()) == [Reason.SYMLINK, Reason.NOT_A_FILE, Reason.NOT_A_FILE]


def _reason(root: Root, name: str) -> Reason:
    with pytest.raises(Refused) as caught:
        root.read(name, 100)
    return caught.value.reason


def test_no_descriptor_is_left_open(tmp_path):
    m.put(tmp_path, "a/b/c.jpg", b"x")
    (tmp_path / "a/link").symlink_to("b")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        listing(tmp_path, ["a/b/c.jpg", "a/b", "a/link/c.jpg", "a/b/c.jpg/d", "../x", "a/b/gone"], CAPS, 2)
    with Root(tmp_path) as root:
        root.read("a/b/c.jpg", 10)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(("code", "outcome"), [(errno.EMFILE, OSError), (errno.EACCES, Refused), (errno.EIO, Refused)])
def test_a_fault_of_the_machine_is_no_reason_against_a_file(tmp_path, monkeypatch, code, outcome):
    m.put(tmp_path, "a.jpg", b"x")

    def failing(*words, **options):
        raise OSError(code, "as the test wants")

    with Root(tmp_path) as root, monkeypatch.context() as patch:
        patch.setattr(os, "open", failing)
        with pytest.raises(outcome):
            root.read("a.jpg", 10)


def test_what_is_kept_is_whole_or_not_there(tmp_path):
    png = m.png(4, 4)
    name = keep([png[:5], png[5:]], tmp_path, 1000)
    assert (tmp_path / name).read_bytes() == png
    assert keep([png], tmp_path, 1000) == name
    for chunks, limit in (([png], len(png) - 1), ([b"<html>"], 1000), ([], 1000)):
        with pytest.raises(Refused):
            keep(chunks, tmp_path, limit)
    with pytest.raises(RuntimeError):
        keep(_breaking(png), tmp_path, 1000)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / name]


def _breaking(data):
    yield data
    raise RuntimeError


def test_every_reason_has_a_word_and_a_sentence():
    for reason in Reason:
        assert reason == reason.value == str(reason)
        assert len(reason) <= 24
        assert reason.meaning.endswith(".")
        assert Reason(reason.value) is reason
