"""What a gateway tells its audit log of its own limits: whoever reached one, by the name of the setting.

::

    event=limited limit=max_calls_per_identity identity="token:etl" peer=10.0.0.9:41234 certificate=none
    event=limited limit=bytes_per_s identity="token:etl" log="orders" peer=10.0.0.9:41234 certificate=none
    event=limited limit=bytes_per_s identity="token:etl" log="orders" peer=10.0.0.9:41234 certificate=none times=412 within_s=60

What repeats is counted, as ``telemetry/audit_lines.py`` says. These lines have a bound of their own beside that of
``gateway_audit.py``: neither fills the other's.

Not told: what gRPC refuses by itself, before this process hears of it. That are messages above ``max_batch_bytes``, and
connections above their limit. Such a call ends here as one whose caller has gone.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

from bk_spark.gateway.due_calls import DueCalls
from bk_spark.gateway.rights import CERTIFICATE, CallerIdentity
from bk_spark.telemetry.audit_lines import AuditLines, Who


class LimitAudit:
    """Of one gateway. ``clock``: seconds that only rise. From any thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._lock = threading.Lock()
        self._due = DueCalls(clock)
        self._lines = AuditLines(self._due.later)

    def reached(self, limit: str, identity: CallerIdentity, peer: str, log: str = "") -> None:
        """A call was refused, slowed down or ended by this setting. ``log``: what it is about, where that is known."""
        about = f" log={json.dumps(log)}" if log else ""
        head = f"event=limited limit={limit} identity={json.dumps(str(identity))}{about}"
        who = Who.of_peer(peer, identity.name if identity.kind == CERTIFICATE else "")
        with self._lock:
            self._lines.tell(head, who, identity=str(identity))

    def tick(self) -> None:
        """Tell what is due. Call it every few seconds."""
        with self._lock:
            self._due.run()

    def close(self) -> None:
        """Tell what was counted. The gateway has stopped."""
        with self._lock:
            self._lines.close()
