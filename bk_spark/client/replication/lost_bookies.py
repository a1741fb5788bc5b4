"""Which bookies are lost, and which ledgers lack copies because of it. Pure: no thread, clock or store.

A bookie is *gone* while ledgers name it and it is not registered, neither as writable nor as read-only. It is **lost**, and its
ledgers are marked,

- after it was gone for the grace period: one that is back in time makes no work;
- at once, if another one goes while it is gone, or while copies of an earlier loss are still missing: the next one may hold
  the last copy (situation 79);
- at once, if its cookie is gone, too: it was decommissioned, and nobody can start it again under its id;
- at once, if an operator asks for an audit.

Unknown is never lost. While the registrations cannot be read nothing is concluded, and what is missing at the first look after
that, as at an auditor's very first look, may be coming back together: it gets the whole grace period, and counts as one loss.
That **no** bookie is registered says more about the metadata store, or the power, than about the bookies, and nobody could take
copies: nothing is concluded from it, and the grace of all begins anew when the first one is back.

A bookie that is back is not lost any more; marks that were made stay, and a worker that finds all copies there removes them.

Ref: docs/rules.md, protocol rule 54, situations 76, 78 and 79.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from bk_spark.metadata.ledger_metadata import LedgerMetadata


@dataclass(frozen=True, slots=True)
class Sight:
    """What the metadata store says of the bookies at one moment."""

    registered: frozenset[str]
    """Read-only ones included: they serve what they hold."""
    with_cookie: frozenset[str]
    marks: int
    """Ledgers that are marked: 0 says that all copies of what was lost earlier are there again."""


class LostBookies:
    """What one auditor knows of bookies that are not there."""

    def __init__(self, grace_ms: int) -> None:
        self._grace_ms = grace_ms
        self._expected: set[str] = set()
        """Named by ledgers at the last audit, or seen since."""
        self._gone: dict[str, int] = {}
        """Bookies that are waited for, and since when."""
        self._lost: set[str] = set()
        self._audited: set[str] = set()
        self._had_marks = False
        """At the last look ledgers were marked."""
        self._is_first_look = True

    @property
    def lost(self) -> frozenset[str]:
        return frozenset(self._lost)

    @property
    def is_audit_due(self) -> bool:
        """Whether a bookie is lost and not all ledgers that name it are marked."""
        return not self._lost <= self._audited

    def waiting(self, now_ms: int) -> dict[str, int]:
        """The bookies that are gone and not lost, and how many milliseconds each one still has."""
        return {bookie: max(0, since + self._grace_ms - now_ms) for bookie, since in sorted(self._gone.items())}

    def deadline_ms(self) -> int | None:
        """When the next one is lost unless it comes back."""
        return min((since + self._grace_ms for since in self._gone.values()), default=None)

    def expect(self, named: Collection[str]) -> None:
        """Ledgers name these bookies."""
        self._expected |= set(named)

    def observe(self, seen: Sight, now_ms: int) -> None:
        """The registrations were read."""
        if not seen.registered:
            self.forget_times()
            return
        self._take_back(seen.registered)
        missing = self._expected - seen.registered - self._lost
        new = missing - self._gone.keys()
        is_urgent = bool(new) and not self._is_first_look and (len(missing) > 1 or bool(self._lost and seen.marks))
        self._gone.update(dict.fromkeys(new, now_ms))
        self._is_first_look = False
        self._expected |= seen.registered
        due = {bookie for bookie, since in self._gone.items() if now_ms >= since + self._grace_ms}
        self._lose(missing if is_urgent else due | (missing - seen.with_cookie))
        if self._had_marks and not seen.marks:
            self._audited.clear()  # all was copied, it seems: whom no ledger names any more is not lost
        self._had_marks = bool(seen.marks)

    def observe_nothing(self) -> None:
        """The registrations could not be read: what goes meanwhile is not seen to go."""
        self._is_first_look = True

    def forget_times(self) -> None:
        """Nothing can be said now, and once it can, all that is missing is given the whole grace period.

        Who was lost before may come back unseen, be named by new ledgers, and go again: so it is lost, and audited, anew.
        """
        self._gone.clear()
        self._lost.clear()
        self._audited.clear()
        self._is_first_look = True

    def wait_no_longer(self) -> None:
        """Somebody asked for an audit: what is gone now is lost, and all that is lost is audited again."""
        self._lose(set(self._gone))
        self._audited.clear()

    def audited(self, lost: Collection[str], named: Collection[str]) -> None:
        """All ledgers were looked at for ``lost``, and marked; they name the bookies ``named`` and no others."""
        self._audited |= set(lost)
        self._expected = (self._expected - set(lost)) | set(named)
        self._lost -= set(lost) - set(named)

    def _take_back(self, registered: frozenset[str]) -> None:
        for bookie in registered:
            self._gone.pop(bookie, None)
        self._lost -= registered
        self._audited -= registered

    def _lose(self, bookies: set[str]) -> None:
        self._lost |= bookies
        for bookie in bookies:
            self._gone.pop(bookie, None)


def bookies_of(metadata: LedgerMetadata) -> frozenset[str]:
    """All bookies that a ledger names, in any fragment."""
    return frozenset(bookie for fragment in metadata.fragments for bookie in fragment.ensemble)


def missing_of(metadata: LedgerMetadata, lost: frozenset[str]) -> tuple[str, ...]:
    """Those of ``lost`` that the ledger needs, in the order of their ids.

    Whether there are any entries makes no difference: a fragment without entries needs its whole ensemble, too, for a writer
    may go on with it, and a recovery asks it (protocol rule 54).
    """
    return tuple(sorted(bookies_of(metadata) & lost))
