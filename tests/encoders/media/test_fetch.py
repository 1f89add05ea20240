"""Fetching: what a web address may reach, and what may come of it. A server on this machine stands for the web."""

import hashlib
import shutil
import ssl
import subprocess
import time
from dataclasses import replace

import pytest

from data.errors import UsageError
from encoders.media.caps import Caps
from encoders.media.fetch import Remote, fetch
from encoders.media.reasons import Reason as R
from tests.encoders.media.server import JPEG, serving

CAPS = Caps(bytes=1_000_000)


@pytest.fixture(scope="module")
def web():
    with serving() as server:
        yield server


@pytest.fixture
def base(web) -> str:
    return f"http://pictures.example:{web.server_port}"


@pytest.fixture
def remote(web) -> Remote:
    """Enabled for the server, and for the one network that it is in."""
    return Remote(True, seconds=5, ports=frozenset({web.server_port}), allow=("127.0.0.1/32",))


def resolve(host: str, port: int) -> list[str]:
    """The names of this test's web."""
    return {"pictures.example": ["127.0.0.1"], "inside.example": ["10.0.0.7"]}.get(host, [])


def one(url, folder, remote, resolve=resolve):
    (fetched,) = fetch([url], folder, CAPS, remote, 1, resolve)
    assert (fetched.name is None) == (fetched.reason is not None)
    return fetched


def kept(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_picture_lands_under_its_hash_whatever_its_type_is_said_to_be(web, base, remote, tmp_path):
    fetched = one(f"{base}/picture", tmp_path, remote)
    digest = hashlib.sha256(JPEG).hexdigest()
    assert fetched.name == f"{digest[:2]}/{digest}"
    assert (tmp_path / fetched.name).read_bytes() == JPEG


def test_nothing_is_asked_unless_enabled(web, base, remote, tmp_path):
    asked = len(web.asked)
    assert one(f"{base}/picture", tmp_path, replace(remote, is_enabled=False)).reason == R.REMOTE_DISABLED
    assert len(web.asked) == asked


def test_the_server_learns_nothing_but_the_path(web, base, remote, tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    one(f"{base}/to/{base}/picture?a=%41#part", tmp_path, remote)
    path, headers, _ = web.asked[-1]
    assert path == "/picture?a=%41"
    assert set(headers) == {"Host", "Accept-Encoding", "Connection", "User-Agent"}
    assert headers["Host"] == base.removeprefix("http://")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("gone", R.HTTP_STATUS),
        ("page", R.UNSUPPORTED),
        ("empty", R.EMPTY),
        ("round", R.TOO_MANY_REDIRECTS),
        ("nowhere", R.TOO_MANY_REDIRECTS),
        ("announced", R.TOO_LARGE),
        ("endless", R.TOO_LARGE),
        ("cut", R.UNREACHABLE),
        ("drip", R.TIMEOUT),
        ("drip_head", R.TIMEOUT),
        ("to/ftp://pictures.example/x", R.BAD_URL),
        ("to/file:///etc/passwd", R.BAD_URL),
        ("to/http://user:word@pictures.example/x", R.BAD_URL),
        ("to/http://pictures.example:22/x", R.BAD_URL),
        ("to///inside.example/x", R.BAD_URL),
        ("to/http://inside.example:{port}/x", R.BLOCKED_ADDRESS),
        ("to/http://127.0.0.2:{port}/picture", R.BLOCKED_ADDRESS),
        ("to/http://[::ffff:127.0.0.1]:{port}/picture", R.BLOCKED_ADDRESS),
        ("to/http://2130706433:{port}/picture", R.BAD_URL),
        ("to/http://gone.example:{port}/x", R.UNRESOLVED),
    ],
)
def test_what_a_server_may_do_gives_a_reason_and_keeps_nothing(web, base, remote, tmp_path, path, reason):
    began = time.monotonic()
    url = f"{base}/{path.format(port=web.server_port)}"
    assert one(url, tmp_path, replace(remote, seconds=1)).reason == reason
    assert time.monotonic() - began < 10
    assert kept(tmp_path) == []


def test_three_redirects_are_followed_and_no_more(base, remote, tmp_path):
    three, four = f"{base}/to//to//to//picture", f"{base}/to//to//to//to//picture"
    assert one(three, tmp_path, remote).name
    assert one(four, tmp_path, remote).reason == R.TOO_MANY_REDIRECTS


def test_a_name_is_looked_up_once_and_its_checked_address_asked(web, base, remote, tmp_path):
    """An attacker's name server answers with another address the second time."""
    answers = iter([["127.0.0.1"], ["10.0.0.7"]])
    assert one(f"{base}/picture", tmp_path, remote, lambda host, port: next(answers)).name
    assert next(answers) == ["10.0.0.7"]


def test_one_inward_address_among_several_is_enough(base, remote, tmp_path):
    mixed = one(f"{base}/picture", tmp_path, remote, lambda host, port: ["127.0.0.1", "169.254.169.254"])
    assert mixed.reason == R.BLOCKED_ADDRESS


def test_loopback_is_refused_without_leave(web, base, remote, tmp_path):
    asked = len(web.asked)
    assert one(f"{base}/picture", tmp_path, replace(remote, allow=())).reason == R.BLOCKED_ADDRESS
    assert len(web.asked) == asked


def test_other_ports_are_refused(base, remote, tmp_path):
    assert one(f"{base}/picture", tmp_path, replace(remote, ports=Remote().ports)).reason == R.BAD_URL


def test_a_server_without_a_trusted_certificate_is_not_asked(web, base, remote, tmp_path):
    asked = len(web.asked)
    assert one(base.replace("http:", "https:") + "/picture", tmp_path, remote).reason == R.UNREACHABLE
    assert len(web.asked) == asked


def test_a_network_that_is_none_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"got \('10.1.2.3/16',\)"):
        list(fetch([], tmp_path, CAPS, Remote(allow=("10.1.2.3/16",)), 1))


def test_the_next_address_is_tried_where_nobody_listens(base, remote, tmp_path):
    both = replace(remote, allow=("127.0.0.0/8",))
    assert one(f"{base}/picture", tmp_path, both, lambda host, port: ["127.0.0.2", "127.0.0.1"]).name


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here to make a certificate")
def test_the_certificate_must_be_that_of_the_name_not_of_the_address(remote, tmp_path, monkeypatch):
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=x -addext subjectAltName=DNS:pictures.example"
    )
    subprocess.run([*command.split(), "-keyout", key, "-out", cert], check=True, capture_output=True)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(cert, key)
    trust = ssl.create_default_context(cafile=cert)
    monkeypatch.setattr(ssl, "create_default_context", lambda: trust)
    with serving(served) as server:
        asked = replace(remote, ports=frozenset({server.server_port}))
        names = ("pictures.example", "other.example")
        found = [
            one(f"https://{name}:{server.server_port}/picture", tmp_path / "kept", asked, lambda *_: ["127.0.0.1"])
            for name in names
        ]
    assert found[0].name
    assert found[1].reason == R.UNREACHABLE


def test_nobody_listens(web, remote, tmp_path):
    closed = replace(remote, ports=frozenset({9}))
    assert one("http://pictures.example:9/x", tmp_path, closed).reason == R.UNREACHABLE


def test_answers_come_in_order(base, remote, tmp_path):
    urls = [f"{base}/{'picture' if index % 3 else 'gone'}" for index in range(20)]
    found = list(fetch(urls, tmp_path, CAPS, remote, 3, resolve))
    assert [fetched.url for fetched in found] == urls
    assert [fetched.reason for fetched in found] == [None if index % 3 else R.HTTP_STATUS for index in range(20)]
