"""What a reader knows of its ledger, and which state machines it asks. How it waits for them is up to who derives from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.client.ledger.read_stretches import AT_ONCE, stretch_starts
from bk_spark.client.ledger.running_read import RunningRead
from bk_spark.client.protocol.last_add_confirmed import AwaitLastAddConfirmed, ReadLastAddConfirmed
from bk_spark.client.protocol.limits import ReadLimits, milliseconds
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.errors import ConfigError, NoSuchEntryError, NoSuchLedgerError
from bk_spark.metadata.ledger_metadata import LedgerMetadata

MAX_WAIT_S = 24 * 3600.0
"""The longest single wait for a writer: an application that waits longer calls again, and shows that it is alive."""


@dataclass(frozen=True, slots=True)
class ReadCut:
    """A read, cut into stretches."""

    starts: range
    """Where stretches begin, each as long as the step."""
    limits: ReadLimits
    """Of each stretch."""

    def ranges(self, last: int) -> Iterator[tuple[int, int]]:
        """The first and the last entry of each stretch, inclusive; ``last`` is that of the last one."""
        return ((start, min(start + self.starts.step - 1, last)) for start in self.starts)


class LedgerView:
    """A ledger as far as it is known."""

    def __init__(self, context: ClientContext, ledgers: LedgerStore, metadata: LedgerMetadata) -> None:
        self._context = context
        self._ledgers = ledgers
        self._metadata = metadata
        self._last_add_confirmed = NO_ENTRY
        self._learn(metadata, NO_ENTRY)

    def __repr__(self) -> str:
        standing = "closed" if self.is_closed else "not closed"
        return f"<{type(self).__name__}: ledger {self.ledger_id}, {standing}, last add confirmed {self.last_add_confirmed}>"

    @property
    def ledger_id(self) -> int:
        return self._metadata.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """The newest that this handle saw."""
        return self._metadata

    @property
    def is_closed(self) -> bool:
        """Whether this handle knows that the ledger is closed."""
        return self._metadata.is_closed

    @property
    def length(self) -> int:
        """Payload bytes of a closed ledger; 0 if the ledger is not known to be closed."""
        return self._metadata.length

    @property
    def last_add_confirmed(self) -> int:
        """Entries up to here, inclusive, can be read; -1 for none."""
        return self._last_add_confirmed

    def _read_metadata(self) -> None:
        """Ask the metadata store; waits.

        Comes before bookies are asked: those of a former ensemble have no news, and no bookie knows that a ledger is closed.
        """
        self._context.check_open()
        current = self._ledgers.metadata(self.ledger_id)
        if not current.is_same_ledger(self._metadata):
            raise NoSuchLedgerError(self.ledger_id)
        self._learn(current, NO_ENTRY)

    def _asking(self, *, quorum: bool) -> ReadLastAddConfirmed | None:
        """Asks the bookies how far the ledger is confirmed. None: that is known."""
        if self.is_closed:
            return None
        timeout_ms = milliseconds(self._context.config.read_timeout_s)
        return ReadLastAddConfirmed(self._metadata, timeout_ms=timeout_ms, quorum=quorum)

    def _awaiting(self, beyond: int, timeout_s: float) -> AwaitLastAddConfirmed | None:
        """Waits for an entry above ``beyond``. None: there is one, or never will be. Raises ConfigError."""
        _check_wait(beyond, timeout_s)
        if self.is_closed or self._last_add_confirmed > beyond:
            return None
        wait_ms, timeout_ms = milliseconds(timeout_s), milliseconds(self._context.config.read_timeout_s)
        return AwaitLastAddConfirmed(self._metadata, beyond, wait_ms=wait_ms, timeout_ms=timeout_ms)

    def _check_confirmed(self, first: int, last: int) -> None:
        _check_range(first, last)
        if last > self._last_add_confirmed:
            raise NoSuchEntryError(self.ledger_id, max(first, self._last_add_confirmed + 1))

    def _check_not_behind_end(self, first: int, last: int) -> None:
        _check_range(first, last)
        if self.is_closed and last > self._last_add_confirmed:
            raise NoSuchEntryError(self.ledger_id, max(first, self._last_add_confirmed + 1))

    def _in_stretches(self, first: int, last: int) -> ReadCut:
        """As a read from Apache's bookies is cut."""
        limits = ReadLimits.of(self._context.config)
        share = replace(limits, ahead_bytes=limits.ahead_bytes // AT_ONCE)
        return ReadCut(stretch_starts(self._metadata, first, last, share.ahead_bytes), share)

    def _whole(self, first: int, last: int) -> ReadCut:
        return ReadCut(range(first, last + 1, last - first + 1), ReadLimits.of(self._context.config))

    def _bookies_of(self, first: int, last: int) -> list[str]:
        """Those that hold these entries, the first one's before the others'."""
        ranges = self._metadata.fragment_ranges(last)
        return list(dict.fromkeys(bookie for fragment, _, end in ranges if end >= first for bookie in fragment.ensemble))

    def _end(self, read: RunningRead) -> None:
        """Stop a read, and remember what it found out."""
        read.close()
        if read.new_metadata is not None:
            self._learn(read.new_metadata, NO_ENTRY)

    def _learn(self, metadata: LedgerMetadata, last_add_confirmed: int) -> None:
        """Remember news, also of a closed ledger, as its bookies may be replaced (docs/rules.md, protocol rule 57).

        If several threads report at once, a known end is never taken back; an older ensemble costs the next read another look.
        """
        if metadata.is_closed or not self._metadata.is_closed:
            self._metadata = metadata
        end = NO_ENTRY if metadata.last_entry_id is None else metadata.last_entry_id
        self._last_add_confirmed = max(self._last_add_confirmed, last_add_confirmed, end)


def _check_range(first: object, last: object) -> None:
    if not isinstance(first, int) or not isinstance(last, int) or first < 0 or last < first:
        raise ConfigError("the range of entries", (first, last), "it must start at 0 or above and not end before it starts")


def _check_wait(beyond: object, timeout_s: object) -> None:
    if not isinstance(beyond, int) or isinstance(beyond, bool) or beyond < NO_ENTRY:
        raise ConfigError("beyond", beyond, "it must be an entry id, or -1")
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not 0 <= timeout_s <= MAX_WAIT_S:
        raise ConfigError("timeout_s", timeout_s, f"it must be a number of seconds from 0 to {MAX_WAIT_S:g}")
