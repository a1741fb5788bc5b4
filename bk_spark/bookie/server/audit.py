"""The audit log: who fenced a ledger, administered this bookie, or was refused. One logger, AUDIT_LOGGER, one line each.

::

    event=fenced ledger=7 peer=10.0.0.9:41234 certificate="spark-client"
    event=administered operation=READ_ONLY_ON status=OK peer=10.0.0.7:50012 certificate="operator"
    event=refused reason="the ledger has another password" peer=10.0.0.66:50100 certificate=none
    event=refused reason="the ledger has another password" peer=10.0.0.66:50983 certificate=none times=412 within_s=60
    event=refused reason="its password is wrong" peer=10.0.0.67:50101 certificate=none user="bookkeeper-etl"

Clients must not fill a log: refusals that repeat are counted, as ``telemetry/audit_lines.py`` says, and so are requests of
operators, of which some are told at once. A fence is told once for each ledger, machine, certificate and user, while it is
among the last MOST_FENCED: a recovery fences with many of its reads. Refusals are not told apart by users, for who is refused
may call itself anything.

A handshake that gRPC refuses, and a connection that it does not take, are seen by nobody here: gRPC says so on standard error.

Lives on the event loop. Ref: docs/guide/secure.md, "The audit log".
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bk_spark.telemetry.audit_lines import AuditLines, Later, Who
from bk_spark.telemetry.logging_setup import AUDIT_LOGGER
from bk_spark.tls.peer_name import name_in
from bk_spark.wire.messages import AdminOperation, Status

REQUESTS_AT_ONCE = 10
"""Equal requests of an operator that have a line each: who switches something on and off again sees in which order."""

MOST_FENCED = 10_000
"""Fences that are remembered: the ledgers that a lost bookie's recoveries fence in a minute."""

MOST_LEDGERS = 10
"""Ledgers of an operator's request that a line names; LIMBO_END has 100 at most."""

WRONG_KEY = "the ledger has another password"
CONNECTIONS = "too many connections"
CALLS = "too many open calls"
CLEAR = "it sends requests before TLS"
STRANGER = "it is no member"
UNKNOWN = "it sends requests before it has authenticated"
LOGINS = "too many connections that have not authenticated"
SLOW_LOGIN = "it has not authenticated in time"

logger = logging.getLogger(AUDIT_LOGGER)


class Caller(Protocol):
    """Whoever sends a request."""

    @property
    def peer(self) -> str:
        """Its connection."""

    def who(self) -> Who:
        """While the connection is open."""


@dataclass(frozen=True, slots=True)
class GrpcCaller:
    """The other end of a gRPC call."""

    context: Any

    @property
    def peer(self) -> str:
        return str(self.context.peer())

    def who(self) -> Who:
        return Who.of_peer(self.peer, name_in(self.context.auth_context()))


class Audit:
    """The audit log of one server."""

    def __init__(self, later: Later, is_member: Callable[[Who], bool] = lambda who: True) -> None:
        self._lines = AuditLines(later)
        self._is_member = is_member
        self._fenced: OrderedDict[tuple[int, str, str, str], None] = OrderedDict()

    def fenced(self, ledger_id: int, who: Who) -> None:
        """A ledger is fenced, durably."""
        key = ledger_id, who.host, who.certificate, who.user
        if key not in self._fenced:
            logger.info("event=fenced ledger=%d %s", ledger_id, who)
        self._fenced[key] = None
        self._fenced.move_to_end(key)
        if len(self._fenced) > MOST_FENCED:
            self._fenced.popitem(last=False)

    def administered(self, operation: AdminOperation, ledger_ids: Sequence[int], status: Status, who: Who) -> None:
        """An operator's request was answered."""
        named = ",".join(map(str, ledger_ids[:MOST_LEDGERS])) + (",…" if len(ledger_ids) > MOST_LEDGERS else "")
        ledgers = f" ledgers={named}" if ledger_ids else ""
        self._lines.tell(f"event=administered operation={operation.name}{ledgers} status={status.name}", who, REQUESTS_AT_ONCE)

    def refused(self, reason: str, who: Who) -> None:
        """A request, or a connection, was refused."""
        self._lines.tell(f"event=refused reason={json.dumps(reason)}", who)

    def refused_request(self, status: Status, caller: Caller) -> None:
        """A request was answered with this status: told if that refuses the client for who it is."""
        if status is Status.UNAUTHORIZED:
            who = caller.who()
            self.refused(WRONG_KEY if self._is_member(who) else STRANGER, who)

    def close(self) -> None:
        """Tell what was counted. The server has stopped."""
        self._lines.close()
