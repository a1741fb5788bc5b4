"""The lock of a ledger's re-replication, and guards: what is ephemeral in the metadata store, and goes with its session.

A client has one session after the other. What it asks in the name of an earlier one is not answered, nor what comes out of
order.
"""

from __future__ import annotations

from tests.simulation.world.messages import GiveLockBack, LockTaken, MakeGuard, TakeLock


class LedgerLock:
    def __init__(self) -> None:
        self.guards: dict[str, str] = {}
        """Those that exist, with their clients."""
        self.holder = ""
        """The client whose session holds the lock; empty if none does."""
        self._sessions: dict[str, int] = {}
        self._seen: dict[str, int] = {}

    def session_of(self, client: str) -> int:
        return self._sessions.get(client, 0)

    def is_current(self, client: str, session: int, number: int) -> bool:
        """Whether a request is of the client's session as it is, and none that a later one has overtaken."""
        if session != self.session_of(client) or number < self._seen.get(client, 0):
            return False
        self._seen[client] = number
        return True

    def answer(self, client: str, request: MakeGuard | TakeLock | GiveLockBack) -> LockTaken:
        if isinstance(request, MakeGuard):
            self.guards[request.guard] = client
            return LockTaken(True)
        if isinstance(request, GiveLockBack):
            self.holder = "" if self.holder == client else self.holder
            return LockTaken(False)
        self.holder = self.holder or client
        return LockTaken(self.holder == client)

    def expire(self, client: str) -> None:
        """The client's session is over, and what it had made with it."""
        self._sessions[client] = self.session_of(client) + 1
        self.guards = {guard: owner for guard, owner in self.guards.items() if owner != client}
        self.holder = "" if self.holder == client else self.holder
