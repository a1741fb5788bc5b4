"""Decides which bookies are lost, and which of them a ledger names. Pure: no thread, clock or store.

A bookie is *gone* while ledgers name it and it is not registered, neither as writable nor as read-only. A gone bookie becomes
**lost**, which means that the ledgers that name it get marked,

- when the grace period has passed: a bookie that comes back in time causes no work;
- at once, if another bookie goes while it is gone, or while copies of an earlier loss are still missing: the next bookie to go
  may hold the last copy (situation 79);
- at once, if its cookie is gone too: it was decommissioned, and nobody can start it again under its id;
- at once, if an operator asks for an audit.

Unknown never means lost. While the registrations cannot be read, nothing is concluded. Bookies that are missing when they can
be read again, or at an auditor's very first look, may all be on their way back: they get the whole grace period, and count as
one loss. If **no** bookie is registered, the cause is more likely the metadata store or the power, and no bookie could take
copies: nothing is concluded, and all grace periods begin anew when the first bookie is back.

A bookie that comes back is no longer lost. Its marks stay, and a worker that finds all copies in place removes them.

Ref: docs/rules.md, protocol rule 54, situations 76, 78 and 79.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from bk_spark.metadata.ledger_metadata import LedgerMetadata


@dataclass(frozen=True, slots=True)
class Observation:
    """What the metadata store says about the bookies at one moment."""

    registered: frozenset[str]
    """Includes read-only bookies: they serve what they hold."""
    with_cookie: frozenset[str]
    marks: int
    """The number of marked ledgers. 0 means that all copies of earlier losses exist again."""


class LostBookies:
    """What one auditor knows about bookies that are not registered."""

    def __init__(self, grace_ms: int, named: Collection[str] = ()) -> None:
        """``named`` are the bookies that ledgers name."""
        self._grace_ms = grace_ms
        self._expected = set(named)
        """Bookies that ledgers named at the last audit, or that were seen since."""
        self._gone_since_ms: dict[str, int] = {}
        """Bookies that are gone and not lost yet, and since when."""
        self._lost: set[str] = set()
        self._audited: set[str] = set()
        """Lost bookies whose ledgers are all marked."""
        self._had_marks = False
        """Whether ledgers were marked at the last observation."""
        self._is_first_look = True

    @property
    def lost(self) -> frozenset[str]:
        return frozenset(self._lost)

    @property
    def is_audit_due(self) -> bool:
        """Whether a bookie is lost and not all ledgers that name it are marked."""
        return bool(self.unaudited)

    @property
    def unaudited(self) -> frozenset[str]:
        """Lost bookies that ledgers may name without a mark."""
        return frozenset(self._lost - self._audited)

    def waiting(self, now_ms: int) -> dict[str, int]:
        """The bookies that are gone and not lost, and the milliseconds left of each one's grace period."""
        return {bookie: max(0, since + self._grace_ms - now_ms) for bookie, since in sorted(self._gone_since_ms.items())}

    def deadline_ms(self) -> int | None:
        """When the next bookie becomes lost unless it comes back."""
        return min((since + self._grace_ms for since in self._gone_since_ms.values()), default=None)

    def observe(self, seen: Observation, now_ms: int) -> None:
        """Take in a successful read of the registrations."""
        if not seen.registered:
            self.start_over()
            return
        for bookie in seen.registered:
            self._gone_since_ms.pop(bookie, None)
        self._lost -= seen.registered
        self._audited -= seen.registered
        missing = self._expected - seen.registered - self._lost
        new = missing - self._gone_since_ms.keys()
        is_urgent = bool(new) and not self._is_first_look and (len(missing) > 1 or bool(self._lost and seen.marks))
        self._gone_since_ms.update(dict.fromkeys(new, now_ms))
        self._is_first_look = False
        self._expected |= seen.registered
        due = {bookie for bookie, since in self._gone_since_ms.items() if now_ms >= since + self._grace_ms}
        self._lose(missing if is_urgent else due | (missing - seen.with_cookie))
        if self._had_marks and not seen.marks:
            # All ledgers seem to be re-replicated. The next audit finds which lost bookies no ledger names any more.
            self._audited.clear()
        self._had_marks = bool(seen.marks)
        assert self._lost.isdisjoint(seen.registered), "a bookie that is there is not lost"
        assert self._lost.isdisjoint(self._gone_since_ms)

    def observe_nothing(self) -> None:
        """The registrations could not be read: bookies may go in the meantime without being seen to go."""
        self._is_first_look = True

    def start_over(self) -> None:
        """Conclude nothing now; later give all missing bookies the whole grace period.

        A bookie that was lost may come back unseen, be named by new ledgers, and go again. So lost bookies are forgotten too:
        they have to be lost, and audited, anew.
        """
        self._gone_since_ms.clear()
        self._lost.clear()
        self._audited.clear()
        self._is_first_look = True

    def wait_no_longer(self) -> None:
        """An operator asked for an audit: all gone bookies become lost, and all lost ones are audited again."""
        self._lose(set(self._gone_since_ms))
        self._audited.clear()

    def note_audit(self, lost: Collection[str], named: Collection[str]) -> None:
        """An audit of all ledgers for ``lost`` is complete. ``named`` are all bookies that ledgers name."""
        self._audited |= set(lost)
        self._expected = (self._expected - set(lost)) | set(named)
        self._lost -= set(lost) - set(named)
        # Ledgers that named a lost bookie were marked. If the marks are gone already, the next look has another audit follow.
        self._had_marks |= not self._lost.isdisjoint(lost)

    def _lose(self, bookies: set[str]) -> None:
        self._lost |= bookies
        for bookie in bookies:
            self._gone_since_ms.pop(bookie, None)


def missing_of(metadata: LedgerMetadata, lost: frozenset[str]) -> tuple[str, ...]:
    """The bookies of ``lost`` that the ledger names, sorted by id.

    Fragments without entries count too. Such a fragment needs its whole ensemble, because its writer may go on with it and a
    recovery asks it (protocol rule 54).
    """
    return tuple(sorted(metadata.bookies & lost))
