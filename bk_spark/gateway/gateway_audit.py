"""The audit log of a gateway: who was refused, which tokens are used, and what operators changed of tokens and grants.

::

    event=refused identity="token:etl" right=append log="orders" peer=10.0.0.9:41234 certificate=none
    event=refused reason="its token is not known" peer=10.0.0.66:50100 certificate=none
    event=guessing wrong_tokens=21 within_s=60 peer=10.0.0.66:50100 certificate=none
    event=token-used identity="token:etl" token=Zk3… peer=10.0.0.9:41234 certificate=none
    event=granted identity="token:etl" right=read log="orders*" by="op@host" change=7e0…
    event=revoked identity="token:etl" right=read log="orders*" by="op@host" change=7e0…
    event=token-created identity="token:etl" token=Zk3… ends=2027-02-28T15:04:05Z by="op@host" change=7e0…
    event=token-revoked identity="token:etl" token=Zk3… by="op@host" change=7e0…

Each gateway that runs tells each change; ``change`` says which lines of several gateways are one. No line has a secret: wrong
tokens are not written, for most are a right one with a typing error.

A refusal that repeats is counted, as ``telemetry/audit_lines.py`` says. The use of a token is told once in USED_S for each
token and machine: so a stolen one that is used elsewhere has a line of its own. May be called by several threads.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime

from bk_spark.gateway.access_records import AccessChange
from bk_spark.gateway.due_calls import DueCalls
from bk_spark.gateway.guesses import MANY, WINDOW_S, Guesses
from bk_spark.gateway.rights import CallerIdentity, Grant, Right
from bk_spark.gateway.tokens import StoredToken
from bk_spark.log.stored.names import MAX_NAME_CHARACTERS
from bk_spark.telemetry.audit_lines import AuditLines, Who
from bk_spark.telemetry.logging_setup import AUDIT_LOGGER

USED_S = 3600.0
"""Between two lines that a token is used from a machine."""
MOST_USED = 10_000
"""Pairs of a token and a machine that are remembered, some 2 MB. One that was forgotten is told again."""

logger = logging.getLogger(AUDIT_LOGGER)


class GatewayAudit:
    """The audit log of one gateway. ``clock``: seconds that only rise."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._due = DueCalls(clock)
        self._lines = AuditLines(self._due.later)
        self._guesses = Guesses()
        self._used: OrderedDict[tuple[str, str], float] = OrderedDict()

    def refused(self, identity: CallerIdentity, right: Right, log: str, who: Who) -> None:
        """A call was refused for want of a right."""
        shown = log if len(log) <= MAX_NAME_CHARACTERS else log[:MAX_NAME_CHARACTERS] + "…"
        head = f"event=refused identity={_quoted(identity)} right={right.value} log={json.dumps(shown)}"
        with self._lock:
            self._lines.tell(head, who, identity=str(identity))

    def unknown_caller(self, reason: str, who: Who) -> None:
        """A call was refused because nobody knows whose it is."""
        with self._lock:
            self._lines.tell(f"event=refused reason={json.dumps(reason)}", who)

    def wrong_token(self, reason: str, who: Who) -> int:
        """As ``unknown_caller``; gives back how many wrong tokens came from there within a minute."""
        with self._lock:
            self._lines.tell(f"event=refused reason={json.dumps(reason)}", who)
            wrong = self._guesses.wrong(who.host, self._clock())
            if wrong == MANY + 1:
                logger.info("event=guessing wrong_tokens=%d within_s=%g %s", wrong, WINDOW_S, who)
            return wrong

    def used(self, token: StoredToken, who: Who) -> None:
        """A call came with a token that holds."""
        key, now_s = (token.token_id, who.host), self._clock()
        with self._lock:
            told_s = self._used.get(key)
            if told_s is not None and now_s - told_s < USED_S:
                return
            self._used[key] = now_s
            self._used.move_to_end(key)
            if len(self._used) > MOST_USED:
                self._used.popitem(last=False)
        logger.info("event=token-used %s %s", _token(token), who)

    def changed(self, change: AccessChange) -> None:
        """An operator changed tokens or grants."""
        by = f"by={json.dumps(change.by)} change={change.change}"
        for token in change.revoked:
            logger.info("event=token-revoked %s %s", _token(token), by)
        for token in change.created:
            logger.info("event=token-created %s ends=%s %s", _token(token), _time(token.ends_ms), by)
        for grant in change.removed:
            logger.info("event=revoked %s %s", _grant(grant), by)
        for grant in change.granted:
            logger.info("event=granted %s %s", _grant(grant), by)

    def tick(self) -> None:
        """Tell what is due. Call it every few seconds."""
        with self._lock:
            self._due.run()

    def close(self) -> None:
        """Tell what was counted. The gateway has stopped."""
        with self._lock:
            self._lines.close()


def _quoted(identity: CallerIdentity) -> str:
    return json.dumps(str(identity))


def _token(token: StoredToken) -> str:
    return f"identity={_quoted(token.identity)} token={token.token_id}"


def _grant(grant: Grant) -> str:
    return f"identity={_quoted(grant.identity)} right={grant.right.value} log={json.dumps(grant.logs)}"


def _time(at_ms: int | None) -> str:
    if at_ms is None:
        return "never"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
