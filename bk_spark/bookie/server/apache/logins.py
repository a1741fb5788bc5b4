"""How clients of a bookie's port for Apache's clients show who they are: SASL in messages of AUTH, before anything else.

A client sends an empty message, is asked, and answers. A message of another plugin than ``sasl`` is refused and changes
nothing: clients ask by it whether they must authenticate. Whatever else is wrong ends the connection, so that each guess of a
password takes another one.

Ref: Apache BookKeeper's AuthHandler.ServerSideHandler and SASLBookieAuthProvider.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace

from bk_spark.bookie.server.apache.connection import Connection
from bk_spark.bookie.server.apache.users import ApacheUsers
from bk_spark.bookie.server.audit import Audit
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.wire.apache.digest_md5 import NotProven, Proven, challenge, verify
from bk_spark.wire.apache.version_3 import SASL
from bk_spark.wire.messages import Status

NONCE_BYTES = 16
"""Random; RFC 2831 asks for 8 at least."""

Frame = Callable[[Status, pb.AuthMessage | None], bytes | None]
"""The answer to a message of AUTH as a frame; None where the version has no frame that refuses one."""


class Login:
    """Of one connection. Lives on the event loop."""

    def __init__(self, connection: Connection, users: ApacheUsers, audit: Audit) -> None:
        self._connection = connection
        self._users = users
        self._audit = audit
        self._nonce: str | None = None
        """What it was asked with."""
        self.user = ""
        """Who it is; empty until that is shown."""

    def take(self, message: pb.AuthMessage, frame: Frame) -> None:
        """Answer a message; ``user`` may be known then."""
        if message.authPluginName != SASL:
            self._refuse(frame, "it authenticates by another plugin than SASL")
            return
        outcome = self._outcome(message.payload)
        if isinstance(outcome, NotProven):
            self._audit.refused(outcome.reason, replace(self._connection.who(), user=outcome.user))
            self._refuse(frame, outcome.reason)
            self._connection.finish(outcome.reason)
            return
        if isinstance(outcome, Proven):
            self.user, outcome = outcome.user, outcome.answer
        answer = frame(Status.OK, pb.AuthMessage(authPluginName=SASL, payload=outcome))
        assert answer is not None
        self._connection.send(answer)

    def _outcome(self, payload: bytes) -> bytes | Proven | NotProven:
        if self._nonce is not None:
            return verify(payload, self._nonce, self._users.password_of)
        if payload:
            return NotProven("it begins with another mechanism than DIGEST-MD5")
        self._nonce = secrets.token_hex(NONCE_BYTES)
        return challenge(self._nonce)

    def _refuse(self, frame: Frame, reason: str) -> None:
        refusal = frame(Status.UNAUTHORIZED, None)
        if refusal is None:
            self._connection.finish(reason)
        else:
            self._connection.send(refusal)
