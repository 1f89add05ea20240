"""Hostile files and names: each gives its reason, none a crash, none a way out, and its neighbours come through."""

import hashlib
import json
import subprocess
import sys
import time
from itertools import cycle

import numpy as np
import pytest

from encoders.media.caps import Caps
from encoders.media.listing import listing
from encoders.media.pool import Decoder
from encoders.media.reasons import Reason
from encoders.pixels import Geometry, Picture
from tests.encoders.media import corpus as c

pytest.importorskip("av", reason="films need the extra `video`")
CAPS = Caps(bytes=c.BYTES, pixels=c.PIXELS, seconds=c.SECONDS, memory=c.MEMORY, duration=30)
GEOMETRY = Geometry(32, 36)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def corpus(place) -> c.Corpus:
    return c.build(place / "root", place / "outside")


@pytest.fixture(scope="module")
def batch(place, corpus) -> tuple[list[Picture], float]:
    """All of the corpus in one run with a sound picture after each file, and the seconds that took."""
    good = cycle(c.good_names(place / "root"))
    names = [name for hostile in corpus for name in (hostile, next(good))]
    began = time.monotonic()
    with Decoder(place / "root", GEOMETRY, CAPS, workers=2) as decoder:
        pictures = list(decoder.pictures(names, frames=3))
    assert [picture.name for picture in pictures] == names
    return pictures, time.monotonic() - began


def test_every_file_gives_what_it_must(corpus, batch):
    given = {picture.name: picture for picture in batch[0]}
    wrong = {name: given[name].reason for name, right in corpus.items() if given[name].reason not in right}
    assert not wrong
    assert len(corpus) >= 60
    assert all((given[name].pixels is None) == (given[name].reason is not None) for name in corpus)


def test_no_file_brings_a_process_down(batch):
    assert not [picture.name for picture in batch[0] if picture.reason == Reason.CRASHED]


def test_sound_neighbours_all_come_through(corpus, batch):
    neighbours = [picture for picture in batch[0] if picture.name not in corpus]
    assert len(neighbours) == len(corpus)
    assert all(picture.pixels is not None for picture in neighbours)
    assert len({picture.pixels.tobytes() for picture in neighbours}) == 1


def test_nothing_outside_the_root_is_read(place, corpus, batch):
    seen = [picture.pixels.reshape(-1, 3) for picture in batch[0] if picture.pixels is not None]
    assert not [pixels for pixels in seen if np.all(np.abs(pixels.astype(int) - c.CANARY) < 8)]
    canary = hashlib.sha256((place / "outside/canary.png").read_bytes()).hexdigest()
    assert canary not in {media.sha256 for media in listing(place / "root", corpus, CAPS, threads=2)}


def test_the_run_is_bounded_in_time(corpus, batch):
    slow = sum(Reason.TIMEOUT in right for right in corpus.values())
    assert batch[1] < slow * c.SECONDS + 40


def test_memory_of_the_processes_stays_under_the_cap(place, corpus):
    """Measured by a small process of its own: a child's peak begins with that of the process that started it."""
    code = (
        "import json, resource, sys; from pathlib import Path\n"
        "from encoders.media.caps import Caps; from encoders.media.pool import Decoder\n"
        "from encoders.pixels import Geometry\n"
        "root, caps, names = json.loads(sys.stdin.read())\n"
        "with Decoder(Path(root), Geometry(32, 36), Caps(**caps), 1) as decoder:\n"
        "    count = sum(1 for picture in decoder.pictures(names, 3))\n"
        "own = Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0]\n"
        "print(count, int(own) << 10, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)\n"
    )
    names = [name for name, right in corpus.items() if Reason.TIMEOUT not in right and name.isascii()]
    told = json.dumps([str(place / "root"), vars(CAPS), names])
    run = subprocess.run([sys.executable, "-c", code], input=told, capture_output=True, text=True, check=True)
    count, own, theirs = map(int, run.stdout.split())
    assert count == len(names)
    assert own < 128 << 20
    print(own >> 20, theirs >> 20)
    assert 20 << 20 < theirs < c.MEMORY
