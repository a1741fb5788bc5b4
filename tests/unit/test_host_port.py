"""Hosts and ports are read as they are written, and what is wrong is refused in one sentence."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.host_port import HostPort, is_any_address, parse_host, why_not_bound

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}", fullmatch=True)
ADDRESSES = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str)
PORTS = st.integers(1, 65_535)


@given(st.one_of(NAMES, ADDRESSES), PORTS)
def test_what_is_written_is_read_again(host: str, port: int) -> None:
    place = HostPort(parse_host(host), port)
    assert HostPort.parse(str(place)) == place


@given(st.ip_addresses(v=6))
def test_an_ipv6_address_is_the_same_in_each_of_its_forms(address: ipaddress.IPv6Address) -> None:
    forms = [address.compressed, address.exploded, address.exploded.upper()]
    read = {parse_host(form) for text in forms for form in (text, f"[{text}]")}
    assert read == {address.compressed}
    assert str(HostPort(address.compressed, 3181)) == f"[{address.compressed}]:3181"


def outcome(read: Callable[[str], object], text: str) -> tuple[object, str]:
    """What is read, and why nothing is."""
    try:
        return read(text), ""
    except ValueError as problem:
        return None, str(problem)


@given(st.text(min_size=1, max_size=30))
def test_any_text_is_read_or_refused_in_one_sentence_that_shows_it(text: str) -> None:
    for read in (parse_host, HostPort.parse):
        found, problem = outcome(read, text)
        assert (found is None) == (text in problem)
        assert "\n" not in problem.replace(text, "")
        assert found is None or read(str(found)) == found


@pytest.mark.parametrize(
    "text",
    ["[::1", "::1]", "[name]", "[127.0.0.1]", "1::2::3", ":::", "::g", "fe80::1%eth0", "[]", "", "a b", "a/b", "unix:x", "a,b"],
)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not|has a zone"):
        parse_host(text)


@pytest.mark.parametrize(
    "text", ["::1:2181", "host", "host:", "host:0", "host:65536", "host:x", "[::1]", "[::1]2181", ":80", "a:b:1"]
)
def test_what_has_no_host_or_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"port|brackets|is not"):
        HostPort.parse(text)


@pytest.mark.parametrize(
    ("host", "is_any"), [("0.0.0.0", True), ("::", True), ("::1", False), ("10.0.0.7", False), ("bookie", False)]
)
def test_an_address_that_stands_for_all_is_known(host: str, is_any: bool) -> None:
    assert is_any_address(host) is is_any


def test_why_nothing_can_listen_is_said_without_the_address_again() -> None:
    taken = OSError(errno.EADDRINUSE, "Address already in use (while attempting to bind on address ('127.0.0.1', 33477))")
    assert why_not_bound(taken) == "Address already in use"
    told = "error while attempting to bind on address ('127.0.0.1', 33477): address already in use"
    assert why_not_bound(OSError(errno.EADDRINUSE, told)) == "address already in use"
    assert why_not_bound(socket.gaierror(socket.EAI_NONAME, "Name or service not known")) == "Name or service not known"
    assert why_not_bound(OSError("no address")) == "no address"
