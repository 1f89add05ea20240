"""What passes between the run and a decoding process: a word, a number and bytes, with their lengths in front."""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass

_HEAD = struct.Struct("!16sIQ")
_CHUNK = 1 << 20

READY, PIXELS = "ready", "pixels"


class Broken(Exception):
    """The other side is gone, or says what nobody should."""


@dataclass(frozen=True)
class Message:
    """To the process: kind of file, frames wanted, the file. From it: "ready", "pixels" and how many frames, or a
    reason."""

    word: str
    number: int = 0
    body: bytes = b""


def send(line: socket.socket, message: Message, deadline: float | None = None) -> None:
    """Send, until `deadline` (time.monotonic; None waits); raises TimeoutError, Broken."""
    head = _HEAD.pack(message.word.encode("ascii"), message.number, len(message.body))
    try:
        for data in (head, message.body):
            line.settimeout(_left(deadline))
            line.sendall(data)
    except TimeoutError:
        raise
    except OSError as error:
        raise Broken from error


def receive(line: socket.socket, limit: int, deadline: float | None = None) -> Message:
    """The next message, with at most `limit` bytes in its body; raises TimeoutError, Broken."""
    word, number, length = _HEAD.unpack(_exactly(line, _HEAD.size, deadline))
    if length > limit:
        raise Broken
    return Message(word.rstrip(b"\0").decode("ascii", "replace"), number, _exactly(line, length, deadline))


def _exactly(line: socket.socket, count: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < count:
        line.settimeout(_left(deadline))
        try:
            part = line.recv(min(count - len(data), _CHUNK))
        except TimeoutError:
            raise
        except OSError as error:
            raise Broken from error
        if not part:
            raise Broken
        data += part
    return bytes(data)


def _left(deadline: float | None) -> float | None:
    """Seconds until `deadline`. A timeout of 0 would mean not to wait at all, another thing than too late."""
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
