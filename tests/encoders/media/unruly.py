"""A decoding process that does what a file tells it to: stands for a decoder that a file has broken."""

import ctypes
import os
import socket
import time

from encoders.media import child, decode, wire

PLAIN = decode.picture


def _picture(data, kind, geometry, caps):
    for word, act in list(ACTS.items()):
        if word in data:
            act(caps)
    return PLAIN(data, kind, geometry, caps)


def _spin(caps):
    while True:
        pass


def _hoard(caps):
    bytearray(2 * caps.memory)


def _open(caps):
    """Dies unless every way to a file is closed."""
    for attempt in (lambda: os.open("/etc/hostname", 0), lambda: os.memfd_create("x"), lambda: os.dup(0), os.pipe):
        try:
            attempt()
        except OSError:
            continue
        os._exit(9)


def _poison(caps):
    """Leaves the process so that the next file brings it down."""
    ACTS[b"JFIF"] = lambda caps: os._exit(9)


def _say(word: str, number: int, body: bytes):
    def act(caps):
        wire.send(socket.socket(fileno=0), wire.Message(word, number, body))
        time.sleep(60)

    return act


ACTS = {
    b"DO CRASH": lambda caps: ctypes.string_at(0),
    b"DO EXIT": lambda caps: os._exit(0),
    b"DO SPIN": _spin,
    b"DO SLEEP": lambda caps: time.sleep(60),
    b"DO HOARD": _hoard,
    b"DO OPEN": _open,
    b"DO POISON": _poison,
    b"DO SAY LITTLE": _say(wire.PIXELS, 1, b"abc"),
    b"DO SAY MUCH": _say(wire.PIXELS, 1, bytes(1 << 16)),
    b"DO SAY NONE": _say(wire.PIXELS, 0, b""),
    b"DO SAY NONSENSE": _say("hello", 1, b""),
}


if __name__ == "__main__":
    decode.picture = _picture
    child.main()
