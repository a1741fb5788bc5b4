"""How far an open ledger is confirmed: ask every bookie of its last ensemble, take the highest answer.

The answer counts once every possible ack quorum has a bookie among those that know (OK, or explicitly that they hold
nothing of the ledger): then no entry that was confirmed *and followed by another* before the question can be missed.
It is never below the entry before the last fragment, which only starts after all earlier entries are confirmed.

With ``quorum=False`` any answer is enough: true, but perhaps older than what a quorum knows. The first bookie that holds
the ledger decides; those that hold nothing of it are waited out, and count if nobody holds it.

Ref: the BookKeeper protocol, "Writing to ledgers"; docs/rules.md, protocol rules 3 and 6, for its quorum and floor.
"""

from __future__ import annotations

from bk_spark.client.operation import Command, Event, Finish, LastAddConfirmedAnswered, SendReadLastAddConfirmed, Start
from bk_spark.errors import BookieUnavailableError, UnauthorizedAccessError
from bk_spark.ledger_metadata import LedgerMetadata
from bk_spark.quorum import is_covered
from bk_spark.wire import Status, Verdict


class ReadLastAddConfirmed:
    """The state machine of one question; its result is the last add confirmed.

    Finish comes with BookieUnavailableError if too few bookies answered within ``timeout_ms``, UnauthorizedAccessError.
    """

    def __init__(self, metadata: LedgerMetadata, *, timeout_ms: int, quorum: bool = True, floor: int | None = None) -> None:
        """``floor`` is known to be confirmed; None: all before the last fragment, as its start says."""
        self._metadata = metadata
        self._timeout_ms = timeout_ms
        self._quorum = quorum
        self._started_ms: int | None = None
        self._highest = metadata.last_fragment.first_entry_id - 1 if floor is None else floor
        self._known: set[int] = set()
        self._unknown: dict[int, str] = {}
        self._finished = False
        self._commands: list[Command] = []

    def handle(self, event: Event, now_ms: int) -> None:
        if isinstance(event, Start):
            self._started_ms = now_ms
            for slot, bookie_id in enumerate(self._metadata.last_fragment.ensemble):
                self._commands.append(SendReadLastAddConfirmed(slot, bookie_id))
        elif isinstance(event, LastAddConfirmedAnswered):
            self._answered(event)
        if self._started_ms is not None and now_ms >= self._started_ms + self._timeout_ms:
            self._give_up(f"no answer for {self._timeout_ms / 1000:g} s")

    def take_commands(self) -> list[Command]:
        commands, self._commands = self._commands, []
        return commands

    def deadline_ms(self) -> int | None:
        return None if self._finished or self._started_ms is None else self._started_ms + self._timeout_ms

    def _answered(self, event: LastAddConfirmedAnswered) -> None:
        if event.status is Status.UNAUTHORIZED:
            self._finish(Finish(error=UnauthorizedAccessError(self._metadata.ledger_id)))
        elif event.status.verdict is Verdict.UNKNOWN:
            self._unknown[event.request_id] = f"{event.status.name} {event.detail}".rstrip()
        else:
            self._known.add(event.request_id)
            if event.status is Status.OK:
                self._highest = max(self._highest, event.last_add_confirmed)
        self._decide(event.status)

    def _decide(self, status: Status) -> None:
        metadata = self._metadata
        sizes = (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        is_enough = is_covered(frozenset(self._known), *sizes) if self._quorum else status is Status.OK
        if is_enough:
            self._finish(Finish(result=self._highest))
        elif len(self._known) + len(self._unknown) == metadata.ensemble_size:
            self._give_up("")

    def _give_up(self, silent: str) -> None:
        if self._known and not self._quorum:
            self._finish(Finish(result=self._highest))
            return
        ensemble = self._metadata.last_fragment.ensemble
        reasons = {slot: self._unknown.get(slot, silent) for slot in range(len(ensemble)) if slot not in self._known}
        replicas = tuple(f"{ensemble[slot]}: {reason}" for slot, reason in reasons.items())
        self._finish(Finish(error=BookieUnavailableError(self._metadata.ledger_id, self._highest + 1, replicas)))

    def _finish(self, command: Finish) -> None:
        if not self._finished:
            self._finished = True
            self._commands.append(command)
