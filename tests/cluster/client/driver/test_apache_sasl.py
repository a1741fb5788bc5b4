"""A client with a credential at Apache's bookies: what it makes of each answer that there may be, and how often it asks.

Apache's bookies answer nothing to a message of SASL that they refuse. Ref: apache/bookkeeper's AuthHandler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("puresasl")

from bk_spark.client.driver.apache import connecting, login_access
from bk_spark.client.driver.apache.login_access import LoginAccess
from bk_spark.client.driver.apache.sasl import Credential
from bk_spark.proto import apache_wire_pb2 as pb
from tests.cluster.client.apache_server import apache_bookie, response
from tests.sasl_client import proof

USER, PASSWORD = "bookkeeper-etl", "s3cret:x"
CHALLENGE = b'realm="bookkeeper",nonce="n0nce",qop="auth",charset=utf-8,algorithm=md5-sess'
DEADLINE_S = 30.0


def credential(password: str = PASSWORD) -> Credential:
    made = Credential.of(f"sasl:{USER}:{password}")
    assert made is not None
    return made


Say = Callable[[bytes], bytes | None]
"""A bookie's answer to a message of SASL; None: silence."""


class Bookie:
    """Asks for SASL, and counts what it is asked."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self.messages: list[bytes] = []

    def authenticate(self, frame: bytes) -> list[bytes]:
        asked = pb.Request.FromString(frame).authRequest
        if asked.authPluginName != "sasl":
            return [response(frame, 502)]
        self.messages.append(asked.payload)
        payload = self._say(asked.payload)
        if payload is None:
            return []
        return [response(frame, authResponse=pb.AuthMessage(authPluginName="sasl", payload=payload))]


async def refuses(frame: bytes) -> list[bytes]:
    """What is asked before the client has authenticated."""
    return [response(frame, 502)]


def problem_of(authenticate: Any, times: int = 1, given: LoginAccess | None = None) -> str:
    """What a client says after so many requests."""

    async def whole() -> str:
        async with apache_bookie(refuses, authenticate, given or LoginAccess(credential=credential())) as bookie:
            problems = set()
            for _ in range(times):
                with pytest.raises(ConnectionError) as refused:
                    await asyncio.wait_for(bookie.describe(DEADLINE_S), DEADLINE_S)
                problems.add(str(refused.value).partition(" at 127.0.0.1:")[2].partition(" ")[2])
            [problem] = problems
            return problem

    return asyncio.run(whole())


def then(*answers: bytes | None) -> Say:
    """These, one after the other."""
    rest = iter(answers)
    return lambda _: next(rest)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No refusal waits for a time-out."""
    monkeypatch.setattr(connecting, "STEP_S", DEADLINE_S)


def test_a_bookie_that_asks_nobody_is_refused_by_a_client_with_a_credential() -> None:
    def authenticate(frame: bytes) -> list[bytes]:
        return [response(frame, authResponse=pb.AuthMessage(authPluginName="AuthDisabledPlugin", payload=b""))]

    assert problem_of(authenticate).startswith("asks nobody to authenticate, so it may be anybody: set up SASL there")


def test_a_message_that_is_not_answered_was_refused_and_the_first_one_means_another_mechanism() -> None:
    bookie = Bookie(then(None))
    assert "not by SASL's DIGEST-MD5: Kerberos and other plugins are not supported" in problem_of(bookie.authenticate)
    assert bookie.messages == [b""]


def test_a_response_that_is_not_answered_means_a_wrong_password() -> None:
    bookie = Bookie(then(CHALLENGE, None))
    assert problem_of(bookie.authenticate).startswith("refuses the user or the password of bookie_auth (bookieAuth, --bookie")
    assert PASSWORD.encode() not in bookie.messages[1]


def test_a_bookie_that_has_refused_is_not_asked_again_by_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    bookie = Bookie(lambda payload: None if payload else CHALLENGE)
    problem_of(bookie.authenticate, times=20)
    assert len(bookie.messages) == 2
    monkeypatch.setattr(login_access, "REFUSED_S", 0.0)
    problem_of(bookie.authenticate, times=3)
    assert len(bookie.messages) == 2 + 3 * 2


@pytest.mark.parametrize(
    "wrong",
    [
        b"rspauth=" + b"0" * 32,
        b"",
        b"rspauth=",
        proof(USER, "another", b"n0nce"),
        b"x" * 3000,
        CHALLENGE,
        b"\xff=",
    ],
)
def test_a_bookie_that_does_not_show_that_it_knows_the_password_is_refused(wrong: bytes) -> None:
    problem = problem_of(Bookie(then(CHALLENGE, wrong)).authenticate)
    assert "the password of bookie_auth" in problem or "3000 bytes as a message of SASL" in problem


@pytest.mark.parametrize(
    "wrong",
    [b"", b"x", b"rspauth=" + b"0" * 32, CHALLENGE.replace(b'"auth"', b'"auth-int"'), CHALLENGE * 30, b"\xff=1", b"maxbuf=x"],
)
def test_a_first_message_that_is_no_challenge_is_refused(wrong: bytes) -> None:
    bookie = Bookie(then(wrong, None))
    assert problem_of(bookie.authenticate)
    assert len(bookie.messages) == 1


def test_a_bookie_of_another_plugin_is_refused() -> None:
    def authenticate(frame: bytes) -> list[bytes]:
        return [response(frame, 502)]

    assert "not by SASL's DIGEST-MD5" in problem_of(authenticate)
