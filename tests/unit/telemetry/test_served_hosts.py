"""Under which host names a server may be asked."""

from __future__ import annotations

import pytest

from bk_spark.telemetry.served_hosts import ServedHosts


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "0.0.0.0", "::"])
def test_the_names_of_loopback_are_one(host: str) -> None:
    served = ServedHosts.of(host)
    assert all(served.has(name) for name in ("localhost", "127.0.0.1", "::1"))


def test_a_name_that_was_not_given_is_refused_and_so_is_none() -> None:
    served = ServedHosts.of("127.0.0.1", ["Dash.Example"])
    assert served.has("dash.example")
    assert not any(served.has(name) for name in ("evil.example", "localhost.evil.example", "10.0.0.1", "", None))


def test_a_server_at_one_address_is_not_asked_as_localhost() -> None:
    served = ServedHosts.of("10.0.0.5")
    assert served.has("10.0.0.5")
    assert not served.has("localhost")


def test_a_server_at_all_addresses_is_asked_under_any_address_and_no_other_name() -> None:
    """Nobody can make an address mean another server; a name can be made to mean this one."""
    served = ServedHosts.of("0.0.0.0")
    assert served.has("10.1.2.3")
    assert served.has("fd00::7")
    assert not served.has("evil.example")


def test_an_address_of_ipv6_may_be_given_with_its_brackets() -> None:
    assert ServedHosts.of("127.0.0.1", ["[fd00::7]"]).has("fd00::7")


def test_it_says_what_it_was_started_for() -> None:
    assert str(ServedHosts.of("0.0.0.0", ["dash.example"])) == "127.0.0.1, ::1, dash.example, localhost, its addresses"
