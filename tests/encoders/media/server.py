"""A small web server on this machine that misbehaves on request."""

import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from tests.encoders.media import makers as m

JPEG = m.saved(m.gradient(60, 40), "JPEG")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked.append((self.path, dict(self.headers), self.client_address))
        getattr(self, f"_{self.path.strip('/').partition('/')[0].partition('?')[0]}", self._missing)()

    def log_message(self, *words):
        pass

    def _answer(self, body: bytes, status: int = 200, length: int | None = None, **headers: str):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def _missing(self):
        self._answer(b"no", 404)

    def _picture(self):
        self._answer(JPEG, Content_Type="text/html", Set_Cookie="a=b")

    def _page(self):
        self._answer(b"<html>" + JPEG, Content_Type="image/jpeg")

    def _empty(self):
        self._answer(b"")

    def _to(self):
        self._answer(b"", 302, Location=self.path.removeprefix("/to/"), Set_Cookie="a=b")

    def _round(self):
        self._answer(b"", 301, Location="/round")

    def _nowhere(self):
        self._answer(b"", 302)

    def _announced(self):
        self._answer(b"", length=10**9)

    def _cut(self):
        self._answer(JPEG[:100], length=len(JPEG))
        self.close_connection = True

    def _endless(self):
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        self._pour(JPEG[:64] + bytes(1 << 16), 0)

    def _drip(self):
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        self._pour(JPEG[:1], 0.05)

    def _drip_head(self):
        self.close_connection = True
        self._pour(b"H", 0.05)

    def _pour(self, data: bytes, pause: float):
        try:
            for _ in range(2000):
                self.wfile.write(data)
                time.sleep(pause)
        except OSError:
            pass  # the client has had enough, which is what the test is about


@contextmanager
def serving(secure: ssl.SSLContext | None = None) -> Iterator[ThreadingHTTPServer]:
    """A running server; `asked` has (path, headers, client) of each request."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if secure is not None:
        server.socket = secure.wrap_socket(server.socket, server_side=True)
    server.daemon_threads, server.asked = True, []
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
