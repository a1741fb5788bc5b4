"""The audit log: who fenced a ledger, administered this bookie, or was refused. One logger, AUDIT_LOGGER, one line each.

::

    event=fenced ledger=7 peer=10.0.0.9:41234 certificate="spark-client"
    event=administered operation=READ_ONLY_ON status=OK peer=10.0.0.7:50012 certificate="operator"
    event=refused reason="the ledger has another password" peer=10.0.0.66:50100 certificate=none
    event=refused reason="the ledger has another password" peer=10.0.0.66:50983 certificate=none times=412 within_s=60
    event=refused reason="its password is wrong" peer=10.0.0.67:50101 certificate=none user="bookkeeper-etl"

Clients must not fill a log. A refusal is told at once if there was none like it, of the same machine, certificate and reason,
in the last TELL_S. Others are counted, and told together when that time is over. So are requests of operators, of which some
are told at once. MOST_KINDS are told apart at a time; the others count as one. A fence is told once for each ledger, machine,
certificate and user, while it is among the last MOST_FENCED: a recovery fences with many of its reads. Refusals are not told
apart by users, for who is refused may call itself anything.

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
from urllib.parse import unquote

from bk_spark.telemetry.logging_setup import AUDIT_LOGGER
from bk_spark.wire.messages import AdminOperation, Status

TELL_S = 60.0
"""Between two lines about what repeats: a client that tries again every second makes a line a minute."""

MOST_KINDS = 1_000
"""Lines that are told apart in TELL_S, some 300 KB of memory."""

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
UNKNOWN = "it sends requests before it has authenticated"
LOGINS = "too many connections that have not authenticated"
SLOW_LOGIN = "it has not authenticated in time"

logger = logging.getLogger(AUDIT_LOGGER)


@dataclass(frozen=True, slots=True)
class Who:
    """The other end of a connection."""

    host: str
    port: str
    certificate: str = ""
    """The common name of the certificate that it showed, or its first other name; "" without one."""
    user: str = ""
    """Whom it calls itself by SASL: shown to be true, unless the line is a refusal of that. "" without SASL."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = f" user={json.dumps(self.user)}" if self.user else ""
        return f"peer={host}:{self.port} certificate={json.dumps(self.certificate) if self.certificate else 'none'}{user}"


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
        host, _, port = unquote(self.peer).partition(":")[2].rpartition(":")
        shown = self.context.auth_context()
        names = [*shown.get("x509_common_name", ()), *shown.get("x509_subject_alternative_name", ())]
        return Who(host.strip("[]"), port, names[0].decode(errors="replace") if names else "")


Later = Callable[[float, Callable[[], None]], object]
"""Calls something after so many seconds, on the event loop."""

_Kind = tuple[str, str, str]
"""The head of a line, and the machine and the certificate of whoever caused it."""
_OTHERS: _Kind = ("event=others", "", "")


@dataclass(slots=True)
class _Repeats:
    """Of one kind, as long as it goes on."""

    told: int = 0
    """Lines of their own."""
    held: int = 0
    """What was counted since the last line."""
    last: Who | None = None
    """Who caused the last one of these."""


class Audit:
    """The audit log of one server."""

    def __init__(self, later: Later) -> None:
        self._later = later
        self._repeats: dict[_Kind, _Repeats] = {}
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
        self._tell(
            f"event=administered operation={operation.name}{ledgers} status={status.name}", who, at_once=REQUESTS_AT_ONCE
        )

    def refused(self, reason: str, who: Who) -> None:
        """A request, or a connection, was refused."""
        self._tell(f"event=refused reason={json.dumps(reason)}", who, at_once=1)

    def refused_request(self, status: Status, caller: Caller) -> None:
        """A request was answered with this status: told if that refuses the client for who it is."""
        if status is Status.UNAUTHORIZED:
            self.refused(WRONG_KEY, caller.who())

    def close(self) -> None:
        """Tell what was counted. The server has stopped."""
        for kind, repeats in self._repeats.items():
            _tell_held(kind, repeats)
        self._repeats.clear()

    def _tell(self, head: str, who: Who, at_once: int) -> None:
        kind = head, who.host, who.certificate
        if kind not in self._repeats and len(self._repeats) >= MOST_KINDS:
            kind = _OTHERS
        if kind not in self._repeats:
            self._repeats[kind] = _Repeats()
            self._later(TELL_S, lambda: self._end(kind))
        repeats = self._repeats[kind]
        if repeats.told < at_once:
            repeats.told += 1
            logger.info("%s %s", head, who)
        else:
            repeats.held += 1
            repeats.last = who

    def _end(self, kind: _Kind) -> None:
        """The time of a kind is over. It is watched on, and counted from the first one on, as long as it goes on."""
        repeats = self._repeats.get(kind)
        if repeats is None:
            return
        if repeats.held:
            _tell_held(kind, repeats)
            self._later(TELL_S, lambda: self._end(kind))
        else:
            del self._repeats[kind]


def _tell_held(kind: _Kind, repeats: _Repeats) -> None:
    if repeats.held:
        logger.info("%s %s times=%d within_s=%g", kind[0], repeats.last, repeats.held, TELL_S)
        repeats.held = 0
