"""Log: a named, ordered list of ledgers, for applications.

Ref: the BookKeeper protocol, "Ledgers to logs".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.client.log.changes.jobs import WriteJob
from bk_spark.client.log.changes.plan import CommitRequest
from bk_spark.client.log.entry_range import LedgerReader, LogPosition, LogRange, place_of
from bk_spark.client.log.leader.leadership import Leadership
from bk_spark.client.log.leader.log_write_handle import LogWriteHandle
from bk_spark.client.log.leader.roll_log import RollLimits
from bk_spark.client.log.log_store import LogStore
from bk_spark.client.log.stored.snapshot import LogSnapshot
from bk_spark.client.log.stored.values import CommitKind, CommittedLedger, Content, LogVersion, OpenLedger, Retention
from bk_spark.config import MIB, DigestType, LedgerOptions
from bk_spark.errors import ConfigError, NoSuchLogError

__all__ = ["DEFAULT_ROLL_BYTES", "LedgerAccess", "Log", "LogPosition"]

DEFAULT_ROLL_BYTES = 1024**3
"""Space is given back by whole ledgers, so a leader that stays for long must roll, or nothing that it wrote could be deleted.
At 10 MB/s this is a commit every two minutes, and 800 ledgers a day."""


@dataclass(frozen=True, slots=True)
class LedgerAccess:
    """How the client that opened a log opens and creates the log's ledgers, with the password given there."""

    open_ledger: Callable[[int], LedgerReader]
    """Without recovery: as far as it is confirmed."""
    create_ledger: Callable[[LedgerOptions, WriteJob], WriteHandle]
    password: bytes = field(default=b"", repr=False)
    window_bytes: int = 16 * MIB
    """``ClientConfig.add_window_bytes`` of the client."""


class Log:
    """One log. After its deletion the methods raise NoSuchLogError, even if a new log has its name."""

    def __init__(self, logs: LogStore, name: str, uid: str, access: LedgerAccess) -> None:
        self.name: Final = name
        self.uid: Final = uid
        """The random id that tells this log from others that had or will have its name."""
        self._logs = logs
        self._access = access

    @property
    def retention(self) -> Retention:
        """What ``bk-spark log vacuum`` removes of this log."""
        return self._logs.names.head(self.name, self.uid).retention

    def set_retention(self, retention: Retention) -> None:
        """Replace the log's retention as a whole. Takes effect at the next vacuum."""
        self._logs.set_retention(self.name, self.uid, retention)

    def snapshot(self, version: int | None = None) -> LogSnapshot:
        """The log at ``version``, by default the newest. Raises NoSuchLogError, ConfigError."""
        snapshot = self._logs.reader.snapshot(self.name, version)
        if snapshot.uid != self.uid:
            raise NoSuchLogError(self.name)
        return snapshot

    def ledgers(self) -> list[CommittedLedger | OpenLedger]:
        """The ledgers that the log lists now, in log order. The OpenLedgers at the end are those without a recorded end."""
        snapshot = self.snapshot()
        return [*snapshot.ledgers, *snapshot.open_ledgers]

    def versions(self) -> list[LogVersion]:
        """Every commit to the log that can still be read, oldest first."""
        if self._logs.names.uid(self.name) != self.uid:
            raise NoSuchLogError(self.name)
        return self._logs.reader.all_versions(self.name)

    def append_ledgers(
        self, ledgers: Sequence[int | CommittedLedger], application: tuple[str, int] | None = None
    ) -> LogVersion:
        """List ledgers of entries at the end of the log, all at once. They must be CLOSED, and become this log's for good.

        A leader that has the log open for writing is displaced: what it confirmed stays, before these ledgers.
        ``application`` is an id and a version. If the log has that version of the id or a later one, the call changes
        nothing, and ``duplicate_of`` of the result names the version that holds it.

        Raises SchemaMismatchError on a log of rows; NoSuchLedgerError, LedgerNotClosedError or ConfigError for a ledger
        that cannot be listed; NoSuchLogError; MetadataUnavailableError.
        """
        return self._commit(CommitRequest(CommitKind.APPEND, self._described(ledgers), application=application))

    def replace_ledgers(self, remove: Sequence[int], add: Sequence[int | CommittedLedger]) -> LogVersion:
        """Put ``add`` in the place of ``remove``, all at once; ``add`` may be empty.

        ``remove`` is one stretch of the log in its order. All of it must still be listed, otherwise MetadataConflictError is
        raised. All else stays, also what others append meanwhile. A log of rows takes only ledgers whose number of rows is
        given (CommittedLedger). Older versions keep listing what was removed. Errors as ``append_ledgers``.
        """
        by_id = [one for one in add if not isinstance(one, CommittedLedger)]
        if by_id and self.snapshot().content is Content.ROWS:
            problem = f"log '{self.name}' holds rows: give a CommittedLedger, which says how many rows it holds"
            raise ConfigError("a ledger to add", by_id[0], problem)
        return self._commit(CommitRequest(CommitKind.REPLACE, self._described(add), remove=tuple(remove)))

    def truncate(self, before: LogPosition) -> LogVersion:
        """Remove the ledgers whose entries are all before ``before``. Older versions list them until the next vacuum.

        The last ledger of the log always stays. Returns the newest version if there is nothing to remove. Raises
        ConfigError for a position in a ledger that the log does not list; MetadataConflictError if a leader left a ledger
        open that is to be removed (``recover`` closes it), or if the log was changed meanwhile.
        """
        listed = self.ledgers()
        place = place_of(self.name, listed, "before", before)
        if place is None:
            raise ConfigError("before", before, "it must be a LogPosition: all that is before it goes")
        first = listed[place[0]]
        is_over = isinstance(first, CommittedLedger) and before.entry_id > first.last_entry_id
        if is_over and place[0] + 1 < len(listed):
            first = listed[place[0] + 1]
        return self._logs.truncate(self.name, self.uid, first.ledger_id)

    def open_writer(
        self,
        ensemble_size: int = 3,
        write_quorum: int = 3,
        ack_quorum: int = 2,
        digest_type: DigestType | str = DigestType.CRC32C,
        *,
        roll_bytes: int = DEFAULT_ROLL_BYTES,
    ) -> LogWriteHandle:
        """Become the log's leader, which appends entries to it, and displace the one before.

        The ledgers that a former leader left open are fenced and closed. It confirms nothing more, and what it confirmed
        stays, before all that this leader appends. Nothing is appended before the log lists the new ledger.

        A ledger that holds ``roll_bytes`` (payloads, and 32 bytes for each entry) is followed by a new one, and takes
        appends until that one is listed: ``truncate`` and retention remove whole ledgers. The other options are those of
        ``BookKeeper.create_ledger``, stored with each ledger; the password is the one that the log was opened with.

        The application chooses who leads. Two processes that keep taking the log from each other stay correct, but make
        little progress. Raises ConfigError for an option; SchemaMismatchError on a log of rows; NotEnoughBookiesError;
        BookieUnavailableError if a former leader's ledgers cannot be recovered now; NoSuchLogError; MetadataUnavailableError.
        """
        options = LedgerOptions(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            digest_type=DigestType.of(digest_type),
            password=self._access.password,
        )
        create = self._access.create_ledger
        limits = RollLimits(roll_bytes, self._access.window_bytes)
        leadership = Leadership(self._logs, self.name, self.uid, lambda job: create(options, job))
        return LogWriteHandle(leadership, leadership.take_over(), limits)

    def recover(self) -> LogVersion | None:
        """Fence and close what a leader left open, and record the ends: readers then see all that it confirmed.

        A leader that still runs is displaced. Returns None, and does nothing, if no ledger is open. Raises
        BookieUnavailableError or NotEnoughBookiesError if a ledger cannot be recovered now.
        """
        if not self._logs.names.head(self.name, self.uid).writer.open_ledgers:
            return None
        return self._commit(CommitRequest(CommitKind.APPEND))

    def read(self, start: LogPosition | None = None, end: LogPosition | None = None) -> Iterator[pa.RecordBatch]:
        """The log's entries as it lists them at the call, in log order, from ``start`` (included) to ``end`` (excluded).

        Open ledgers are read without disturbing their leader, as far as they are confirmed when the reading reaches them.
        Reading ends at the first ledger that is not CLOSED. A batch has the columns of a ledger's ``read`` and, before them,
        ``ledger_id``, so that each row has its LogPosition; no batch spans ledgers. Raises ConfigError for a position in a
        ledger that the log does not list; NoSuchLedgerError if a ledger was deleted meanwhile.
        """
        return LogRange.of(self.name, self.ledgers(), start, end).read(self._access.open_ledger)

    def delete(self) -> None:
        """Delete the log and all its ledgers, those of old versions too. A second call finishes what was cut short."""
        self._logs.deleter.delete(self.name, self.uid)

    def _commit(self, request: CommitRequest) -> LogVersion:
        return self._logs.commit_or_abort(self._logs.jobs.begin(self.name, self.uid), request)

    def _described(self, ledgers: Sequence[int | CommittedLedger]) -> tuple[CommittedLedger, ...]:
        ids = [one for one in ledgers if not isinstance(one, CommittedLedger)]
        entries = {one.ledger_id: CommittedLedger.of_entries(one) for one in self._logs.ledgers.describe(ids)}
        return tuple(one if isinstance(one, CommittedLedger) else entries[one] for one in ledgers)
