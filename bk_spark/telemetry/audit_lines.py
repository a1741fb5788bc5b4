"""The form of an audit log's lines, and what keeps clients from filling it. One logger, AUDIT_LOGGER.

::

    event=refused reason="…" peer=10.0.0.66:50100 certificate=none
    event=refused reason="…" peer=10.0.0.66:50983 certificate=none times=412 within_s=60

What repeats is told at once as often as its teller says, and then counted. TELL_S after the first one, all that were counted
are told together. Lines are of one kind if they have the same head, machine, certificate and identity. MOST_KINDS are told
apart at a time, and MOST_OF_ONE of one identity: no caller of a gateway hides what others do by names that he makes up. What is
beyond counts as one kind, ``event=others``.

``bookie/server/audit.py`` and ``gateway/gateway_audit.py`` say what is told. Calls of one AuditLines, and those that it asks
for later, come one after the other.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote

from bk_spark.telemetry.logging_setup import AUDIT_LOGGER

TELL_S = 60.0
"""Between two lines about what repeats: a client that tries again every second makes a line a minute."""

MOST_KINDS = 1_000
"""Lines that are told apart in TELL_S, some 300 KB of memory."""

MOST_OF_ONE = 50
"""Of these, of one caller of a gateway: a script that goes through a list of logs is seen, and writes 20 KB a minute."""

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

    @classmethod
    def of_peer(cls, peer: str, certificate: str = "") -> Self:
        """``peer`` as gRPC has it: ``ipv4:10.0.0.9:41234``, ``ipv6:%5B::1%5D:41234``."""
        host, _, port = unquote(peer).partition(":")[2].rpartition(":")
        return cls(host.strip("[]"), port, certificate)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = f" user={json.dumps(self.user)}" if self.user else ""
        return f"peer={host}:{self.port} certificate={json.dumps(self.certificate) if self.certificate else 'none'}{user}"


Later = Callable[[float, Callable[[], None]], object]
"""Calls something after so many seconds."""

_One = tuple[str, str, str]
"""The machine, the certificate and the identity of whoever caused a line."""
_Kind = tuple[str, _One]
"""The head of a line, and who caused it."""
_OTHERS = "event=others"


@dataclass(slots=True)
class _Repeats:
    """Of one kind, as long as it goes on."""

    told: int = 0
    """Lines of their own."""
    held: int = 0
    """What was counted since the last line."""
    last: Who | None = None
    """Who caused the last one of these."""


class AuditLines:
    """Lines that others cause, each kind bounded."""

    def __init__(self, later: Later) -> None:
        self._later = later
        self._repeats: dict[_Kind, _Repeats] = {}
        self._of: Counter[_One] = Counter()
        """How many kinds each has."""

    def tell(self, head: str, who: Who, at_once: int = 1, identity: str = "") -> None:
        """A line, or one more of its kind. ``at_once``: how many of a kind have lines of their own.

        ``identity``: that of a gateway's caller, which the head names.
        """
        kind = self._known((head, (who.host, who.certificate, identity)))
        if kind not in self._repeats:
            self._repeats[kind] = _Repeats()
            self._of[kind[1]] += 1
            self._later(TELL_S, lambda: self._end(kind))
        repeats = self._repeats[kind]
        if repeats.told < at_once:
            repeats.told += 1
            logger.info("%s %s", head, who)
        else:
            repeats.held += 1
            repeats.last = who

    def _known(self, kind: _Kind) -> _Kind:
        """As what it counts."""
        if kind in self._repeats:
            return kind
        _, one = kind
        _, _, identity = one
        if identity and self._of[one] >= MOST_OF_ONE:
            kind = _OTHERS, one
        return kind if kind in self._repeats or len(self._repeats) < MOST_KINDS else (_OTHERS, ("", "", ""))

    def close(self) -> None:
        """Tell what was counted."""
        for kind, repeats in self._repeats.items():
            _tell_held(kind, repeats)
        self._repeats.clear()
        self._of.clear()

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
            self._of[kind[1]] -= 1
            if not self._of[kind[1]]:
                del self._of[kind[1]]


def _tell_held(kind: _Kind, repeats: _Repeats) -> None:
    if repeats.held:
        logger.info("%s %s times=%d within_s=%g", kind[0], repeats.last, repeats.held, TELL_S)
        repeats.held = 0
