"""SASL's mechanism DIGEST-MD5 as a client of Apache's bookies speaks it, by the package pure-sasl.

The password is not sent. The last message of the bookie shows that it knows the password, too: a client with a credential takes
no bookie that does not.

Ref: Apache BookKeeper's SaslClientState and SaslConstants; RFC 2831; wire/apache/digest_md5.py, the other side.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bk_spark.config import BOOKIE_AUTH_NAME
from bk_spark.errors import ConfigError, State

MAX_CHALLENGE_BYTES = 2048
"""The largest message of a server, as RFC 2831 says. One of Apache's bookies has some 100 bytes."""

_NAME = "bookkeeper"
"""Of the protocol and, for every host, of the host: Apache's clients and bookies take the same."""


class WrongMessageError(Exception):
    """What a bookie sent, as the rest of a sentence."""


@dataclass(frozen=True, slots=True)
class Credential:
    """Who a client is to Apache's bookies."""

    user: str = field(repr=False)
    password: str = field(repr=False)

    @classmethod
    def of(cls, bookie_auth: str) -> Credential | None:
        """That of the setting; None if it is empty. Raises ConfigError if pure-sasl is not installed."""
        if not bookie_auth:
            return None
        try:
            import puresasl.client  # noqa: F401
        except ImportError:
            remedy = "the package pure-sasl is missing, here or on this machine: pip install 'bk-spark[sasl]'"
            raise ConfigError(BOOKIE_AUTH_NAME, State("(not shown)"), remedy) from None
        _, user, password = bookie_auth.split(":", 2)
        return cls(user, password)


class Exchange:
    """One authentication, of two messages of a bookie."""

    def __init__(self, credential: Credential) -> None:
        from puresasl import QOP
        from puresasl.client import SASLClient

        secret = _hashed(credential.password)
        self._client = SASLClient(_NAME, _NAME, "DIGEST-MD5", username=credential.user, password=secret, qops=(QOP.AUTH,))

    def respond(self, challenge: bytes) -> bytes:
        """The answer to a bookie's first message. Raises WrongMessageError."""
        response = self._processed(challenge)
        if not isinstance(response, bytes) or self._client.complete:
            raise WrongMessageError("sends no challenge of DIGEST-MD5")
        return response

    def check(self, last: bytes) -> None:
        """Raises WrongMessageError unless a bookie's last message shows that it knows the password."""
        self._processed(last)
        if not self._client.complete:
            raise WrongMessageError("does not show that it knows the password of bookie_auth")

    def _processed(self, message: bytes) -> Any:
        if len(message) > MAX_CHALLENGE_BYTES:
            raise WrongMessageError(f"sends {len(message)} bytes as a message of SASL, at most {MAX_CHALLENGE_BYTES} are taken")
        try:
            return self._client.process(message)
        except Exception as problem:  # the package raises errors of its own, and whatever its code meets in a wrong message
            raise WrongMessageError("does not show that it knows DIGEST-MD5 and the password of bookie_auth") from problem


def _hashed(password: str) -> bytes:
    """As it is hashed: in ISO 8859-1 if that has all its characters."""
    try:
        return password.encode("latin-1")
    except UnicodeEncodeError:
        return password.encode()
