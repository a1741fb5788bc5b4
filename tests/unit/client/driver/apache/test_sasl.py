"""A client's side of DIGEST-MD5, against the server's side, which shares no code with it."""

from __future__ import annotations

import sys

import pytest

from bk_spark.client.driver.apache.sasl import Credential, Exchange, WrongMessageError
from bk_spark.errors import ConfigError
from bk_spark.wire.apache.digest_md5 import NotProven, Proven, challenge, verify

NONCE = "0123456789abcdef"


def test_without_the_package_a_credential_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "puresasl", None)
    monkeypatch.setitem(sys.modules, "puresasl.client", None)
    with pytest.raises(ConfigError, match=r"pure-sasl is missing.*pip install 'bk-spark\[sasl\]'") as refused:
        Credential.of("sasl:ann:s3cret")
    assert "s3cret" not in str(refused.value)
    assert Credential.of("") is None


def test_a_credential_is_in_no_text_and_its_password_may_have_colons() -> None:
    pytest.importorskip("puresasl")
    made = Credential.of("sasl:ann:s3cret:x")
    assert made == Credential("ann", "s3cret:x")
    assert "s3cret" not in repr(made)


@pytest.mark.parametrize("password", ["s3cret", 'p:a"s\\s,=', "\u00fcber", "\u20ac\u00fc", " "])
def test_both_sides_know_each_other_by_any_password(password: str) -> None:
    pytest.importorskip("puresasl")
    exchange = Exchange(Credential("bookkeeper-etl", password))
    outcome = verify(exchange.respond(challenge(NONCE)), NONCE, {"bookkeeper-etl": password}.get)
    assert isinstance(outcome, Proven)
    exchange.check(outcome.answer)


def test_a_server_with_another_password_is_not_taken() -> None:
    pytest.importorskip("puresasl")
    ours, theirs = (Exchange(Credential("bookkeeper-etl", one)) for one in ("ours", "theirs"))
    refused = verify(ours.respond(challenge(NONCE)), NONCE, {"bookkeeper-etl": "theirs"}.get)
    assert refused == NotProven("its password is wrong", "bookkeeper-etl")
    other = verify(theirs.respond(challenge(NONCE)), NONCE, {"bookkeeper-etl": "theirs"}.get)
    assert isinstance(other, Proven)
    with pytest.raises(WrongMessageError, match=r"does not show that it knows .*the password of bookie_auth"):
        ours.check(other.answer)
