"""The audit log: who fenced a ledger, administered this bookie, or was refused. One logger, AUDIT_LOGGER, one line each.

::

    event=fenced ledger=7 peer=10.0.0.9:41234 certificate="spark-client"
    event=administered operation=READ_ONLY_ON status=OK peer=10.0.0.7:50012 certificate="operator"
    event=refused reason="the ledger has another password" peer=10.0.0.66:50100 certificate=none
    event=refused reason="the ledger has another password" peer=10.0.0.66:50983 certificate=none times=412 within_s=60

Clients must not fill a log. A refusal is told at once if there was none like it, of the same machine, certificate and reason,
in the last TELL_S. Others are counted, and told together when that time is over. MOST_REFUSED kinds are told apart at a time;
the others count as one. A fence is told once for each ledger, machine and certificate, while it is among the last MOST_FENCED:
a recovery fences with many of its reads. Each of these lines cost its client a durable record.

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
"""Between two lines about refusals of one kind: a client that tries again every second makes a line a minute."""

MOST_REFUSED = 1_000
"""Kinds of refusals that are told apart in TELL_S, some 300 KB; so there are twice as many lines at most."""

MOST_FENCED = 10_000
"""Fences that are remembered: the ledgers that a lost bookie's recoveries fence in a minute."""

MOST_LEDGERS = 10
"""Ledgers of an operator's request that a line names; LIMBO_END has 100 at most."""

WRONG_KEY = "the ledger has another password"
CONNECTIONS = "too many connections"
CALLS = "too many open calls"
CLEAR = "it sends requests before TLS"

logger = logging.getLogger(AUDIT_LOGGER)


@dataclass(frozen=True, slots=True)
class Who:
    """The other end of a connection."""

    host: str
    port: str
    certificate: str = ""
    """The common name of the certificate that it showed, or its first other name; "" without one."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"peer={host}:{self.port} certificate={json.dumps(self.certificate) if self.certificate else 'none'}"


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
_OTHERS: _Kind = ("", "", "")


class Audit:
    """The audit log of one server."""

    def __init__(self, later: Later) -> None:
        self._later = later
        self._counts: dict[_Kind, int] = {}
        """Refusals since the last line, of each kind that was told within TELL_S."""
        self._last: dict[_Kind, Who] = {}
        self._fenced: OrderedDict[tuple[int, str, str], None] = OrderedDict()

    def fenced(self, ledger_id: int, who: Who) -> None:
        """A ledger is fenced, durably."""
        key = ledger_id, who.host, who.certificate
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
        logger.info("event=administered operation=%s%s status=%s %s", operation.name, ledgers, status.name, who)

    def refused(self, reason: str, who: Who) -> None:
        """A request, or a connection, was refused."""
        kind = reason, who.host, who.certificate
        if kind not in self._counts and len(self._counts) >= MOST_REFUSED:
            kind = _OTHERS
        if kind in self._counts:
            self._counts[kind] += 1
            self._last[kind] = who
            return
        logger.warning("event=refused reason=%s %s", json.dumps(reason), who)
        self._begin(kind)

    def refused_request(self, status: Status, caller: Caller) -> None:
        """A request was answered with this status: told if that refuses the client for who it is."""
        if status is Status.UNAUTHORIZED:
            self.refused(WRONG_KEY, caller.who())

    def close(self) -> None:
        """Tell what was counted. The server has stopped."""
        for kind in list(self._counts):
            self._tell(kind)

    def _begin(self, kind: _Kind) -> None:
        self._counts[kind] = 0
        self._later(TELL_S, lambda: self._end(kind))

    def _end(self, kind: _Kind) -> None:
        """The time of a kind is over. It is watched on as long as it goes on."""
        if self._tell(kind):
            self._begin(kind)

    def _tell(self, kind: _Kind) -> bool:
        count = self._counts.pop(kind, 0)
        who = self._last.pop(kind, None)
        if not count or who is None:
            return False
        what = "reason=others" if kind == _OTHERS else f"reason={json.dumps(kind[0])}"
        logger.warning("event=refused %s %s times=%d within_s=%g", what, who, count, TELL_S)
        return True
