"""One HTTP request to an address that has been checked, with an end in time."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType

from encoders.media.reasons import Reason, Refused
from encoders.media.urls import Target

_CHUNK = 1 << 16
_HEADERS = {"Accept-Encoding": "identity", "Connection": "close", "User-Agent": "strata"}


class Deadline:
    """`seconds` from entering, everything ends: a server that sends a byte now and then meets no time limit of a single
    read, so at the end the connection is shut under its reader."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._line: socket.socket | None = None
        self._timer = threading.Timer(seconds, self._shut)
        self._timer.daemon = True

    def __enter__(self) -> Deadline:
        """Time runs."""
        self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Time no longer matters."""
        self._timer.cancel()

    def left(self) -> float:
        """Seconds until the end; raises Refused when it is past."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise Refused(Reason.TIMEOUT)
        return left

    def watch(self, line: socket.socket) -> None:
        """The connection to shut at the end."""
        self._line = line
        self.left()

    def _shut(self) -> None:
        if self._line is not None:
            with suppress(OSError):  # it may have been closed just now
                socket.socket.shutdown(self._line, socket.SHUT_RDWR)  # TLS has one that its own thread alone may call


class Answer:
    """What a server answered: `status`, where it sends us on to, and the bytes it announces, None when it does not."""

    def __init__(self, response: http.client.HTTPResponse, deadline: Deadline) -> None:
        self._response, self._deadline = response, deadline
        self.status, self.length = response.status, response.length
        self.location = response.headers.get("Location", "")

    def chunks(self) -> Iterator[bytes]:
        """The body, part by part; raises Refused when it ends early or late."""
        while True:
            with _network(self._deadline):
                chunk = self._response.read(_CHUNK)
            if not chunk:
                break
            yield chunk
        if self._response.length:
            raise Refused(Reason.UNREACHABLE)


@contextmanager
def ask(target: Target, addresses: Sequence[str], deadline: Deadline, trust: ssl.SSLContext) -> Iterator[Answer]:
    """Send a GET for `target` to the first of `addresses` that listens; raises Refused."""
    connection = http.client.HTTPConnection(target.host, target.port)
    connection.auto_open = 0  # it would look up the name
    try:
        with _network(deadline):
            connection.sock = _first(addresses, target.port, deadline)  # the name is looked up no second time
            deadline.watch(connection.sock)
            if target.is_secure:
                connection.sock = trust.wrap_socket(connection.sock, server_hostname=target.host)
                deadline.watch(connection.sock)
            connection.request("GET", target.path, headers=_HEADERS)
            response = connection.getresponse()
        yield Answer(response, deadline)
    finally:
        connection.close()


def _first(addresses: Sequence[str], port: int, deadline: Deadline) -> socket.socket:
    for address in addresses[:-1]:
        try:
            return socket.create_connection((address, port), deadline.left())
        except OSError:
            continue
    return socket.create_connection((addresses[-1], port), deadline.left())


@contextmanager
def _network(deadline: Deadline) -> Iterator[None]:
    """Failures of the network as reasons; past the deadline all of them are its doing, an early end too."""
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        deadline.left()
        raise Refused(Reason.UNREACHABLE) from error
    deadline.left()
