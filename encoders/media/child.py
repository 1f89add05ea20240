"""The decoding process: reads files as bytes from its standard input, a socket, and answers with pixels or a reason.

Before the first byte of a stranger it gives up the right to open, make or grow files, and takes its limits. It is
started by `worker` as `python -m encoders.media.child SETTINGS`.
"""

from __future__ import annotations

import json
import math
import os
import resource
import socket
import sys
import time

from PIL import Image

from encoders.media import decode, film, wire
from encoders.media.caps import Caps
from encoders.media.reasons import Reason, Refused
from encoders.media.sniff import Kind
from encoders.media.warm import warm_up
from encoders.pixels import Geometry

_STANDARD = 3
"""Descriptors 0, 1 and 2: the socket, and two that lead nowhere. Limits count from 0, so a fourth cannot be had."""


def serve(line: socket.socket, geometry: Geometry, caps: Caps) -> None:
    """Answer one request after the other until the other side hangs up."""
    wire.send(line, wire.Message(wire.READY))
    while True:
        try:
            request = wire.receive(line, caps.bytes)
        except wire.Broken:
            return
        _allow_time(caps)
        wire.send(line, answer(request, geometry, caps))


def answer(request: wire.Message, geometry: Geometry, caps: Caps) -> wire.Message:
    """The frames of the file in `request`, one after the other, or the reason why there are none."""
    kind = Kind(request.word)
    try:
        if kind.film:
            found = film.frames(request.body, kind, request.number, geometry, caps)
        else:
            found = [decode.picture(request.body, kind, geometry, caps)]
        return wire.Message(wire.PIXELS, len(found), b"".join(found))
    except Refused as refused:
        return wire.Message(refused.reason)
    except MemoryError:
        return wire.Message(Reason.MEMORY)


def confine(caps: Caps) -> None:
    """Take the limits of this process for good. Those on files hold even for code that a file has smuggled in."""
    for limit, value in (
        (resource.RLIMIT_AS, caps.memory),
        (resource.RLIMIT_NOFILE, _STANDARD),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        least = _least(limit, value)
        resource.setrlimit(limit, (least, least))
    Image.MAX_IMAGE_PIXELS = caps.pixels


def _allow_time(caps: Caps) -> None:
    """Let the processor time of this process end `caps.seconds` from now: a file is decoded by that or never."""
    end = math.ceil(time.process_time() + caps.seconds)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (_least(resource.RLIMIT_CPU, end), hard))


def _least(limit: int, value: int) -> int:
    """`value`, or what the user of this machine is limited to where that is less."""
    hard = resource.getrlimit(limit)[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def main() -> None:
    """Start up, confine, serve."""
    told = json.loads(sys.argv[1])
    warm_up(told["films"])
    line = socket.socket(fileno=sys.stdin.fileno())
    caps = Caps(**told["caps"])
    confine(caps)
    os.dup2(sys.stdout.fileno(), sys.stderr.fileno())  # decoders' warnings would fill what only the start's errors need
    serve(line, Geometry(**told["geometry"]), caps)


if __name__ == "__main__":
    main()
