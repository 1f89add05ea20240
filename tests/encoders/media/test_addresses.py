"""Web addresses and the internet addresses behind them."""

from ipaddress import ip_address, ip_network

import pytest

from encoders.media.addresses import is_allowed, resolve
from encoders.media.reasons import Reason, Refused
from encoders.media.urls import target_of

INWARD_4 = """0.0.0.0 10.1.2.3 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 169.254.169.254 172.16.0.1
172.31.255.255 192.0.0.192 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 239.1.1.1
240.0.0.1 255.255.255.255 168.63.129.16"""
INWARD_6 = """:: ::1 ::127.0.0.1 ::ffff:8.8.8.8 ::ffff:127.0.0.1 64:ff9b::7f00:1 64:ff9b:1::1 100::1 2001::1 2001:db8::1
2002:7f00:1:: 3fff::1 fc00::1 fd00:ec2::254 fe80::1 fe80::1%1 2a00::1%1 fec0::1 ff02::1"""
OUTWARD = """1.1.1.1 8.8.8.8 100.63.0.1 172.32.0.1 192.167.255.255 223.255.255.254 2606:4700::1111 2a00:1450::1"""


@pytest.mark.parametrize("address", f"{INWARD_4} {INWARD_6}".split())
def test_inward_addresses_are_refused(address):
    assert not is_allowed(ip_address(address))


@pytest.mark.parametrize("address", OUTWARD.split())
def test_public_addresses_are_allowed(address):
    assert is_allowed(ip_address(address))


def test_leave_is_given_by_network():
    allow = [ip_network("10.1.0.0/16")]
    assert is_allowed(ip_address("10.1.2.3"), allow)
    assert not is_allowed(ip_address("10.2.2.3"), allow)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "ftp://a.example/x",
            "file:///etc/passwd",
            "//a.example/x",
            "a.example/x",
            "",
            "http:",
            "http:///x",
            "http://",
        ),
        *("http://user@a.example/x", "http://user:word@a.example/x", "http://a.example:99999/x", "http://a.example:x/"),
        *("http://2130706433/", "http://0x7f000001/", "http://017700000001/", "http://127.1/", "http://0x7f.1/"),
        *("http://127.0.0.01/", "http://127.0.0.0x1/", "http://1.2.3.4.5/", "http://256.1.1.1/", "http://a.0x/"),
        *(
            "http://a.example\\@b.example/",
            "http://a.example /x",
            "http://a.example/\r\nHost: b",
            "http://a\t.example/",
        ),
        *("http://a..example/", "http://-a.example/", "http://[::1/", "http://ä.example/", "http://１２７.0.0.1/"),
        *("http://a%2eexample/", "http://a.example@b.example/", f"http://a.example/{'x' * 2100}", "http://[v1.a]/"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(url):
    with pytest.raises(Refused) as caught:
        target_of(url)
    assert caught.value.reason == Reason.BAD_URL


@pytest.mark.parametrize(
    ("url", "host", "port", "path"),
    [
        ("http://A.example/x.jpg?a=1#b", "a.example", 80, "/x.jpg?a=1"),
        ("HTTPS://a.example.", "a.example", 443, "/"),
        ("https://a.example:8443/é", "a.example", 8443, "/%C3%A9"),
        ("http://[2606:4700::1111]/x", "2606:4700::1111", 80, "/x"),
        ("http://1.1.1.1/a%20b", "1.1.1.1", 80, "/a%20b"),
    ],
)
def test_a_plain_address_is_taken_apart(url, host, port, path):
    target = target_of(url)
    assert (target.host, target.port, target.path) == (host, port, path)
    assert target.is_secure == url.lower().startswith("https")
    assert (target.address is not None) == (host[0] in "12")


def test_a_relative_address_follows_its_base():
    assert target_of("../y.jpg", "https://a.example/b/c/x.jpg").url == "https://a.example/b/y.jpg"


def test_the_operating_system_resolves():
    assert "127.0.0.1" in resolve("localhost", 80)
    assert resolve("gone.invalid", 80) == []
