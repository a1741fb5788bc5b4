"""Log: the named, ordered list of ledgers that users hold.

Ref: the BookKeeper protocol, "Ledgers to logs".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from bk_spark.client.log.changes.jobs import WriteJob
from bk_spark.client.log.changes.ledgers import ledger_of_entries
from bk_spark.client.log.changes.plan import CommitRequest
from bk_spark.client.log.entry_range import LedgerReader, LogPosition, LogRange, place_of
from bk_spark.client.log.leader.leadership import Leadership, LedgerWriter
from bk_spark.client.log.leader.log_write_handle import LogWriteHandle
from bk_spark.client.log.leader.roll_log import RollLimits
from bk_spark.client.log.log_store import LogStore
from bk_spark.client.log.stored.snapshot import LogSnapshot
from bk_spark.client.log.stored.values import CommitKind, CommittedLedger, Content, LogVersion, OpenLedger, Retention
from bk_spark.config import MIB, DigestType, LedgerOptions
from bk_spark.errors import ConfigError, NoSuchLogError

__all__ = ["DEFAULT_ROLL_BYTES", "LedgerAccess", "Log", "LogPosition"]

DEFAULT_ROLL_BYTES = 1024**3
"""Space comes back by whole ledgers, so a leader that stays for long must roll, or nothing of what it wrote could go. At
10 MB/s it is a commit every two minutes, and a day of data is cut at 800 places."""


@dataclass(frozen=True, slots=True)
class LedgerAccess:
    """How a log's ledgers are opened and created: by the client that opened the log, with the password given there."""

    open_ledger: Callable[[int], LedgerReader]
    """Without recovery: as far as it is confirmed."""
    create_ledger: Callable[[LedgerOptions, WriteJob], LedgerWriter]
    password: bytes = field(default=b"", repr=False)
    window_bytes: int = 16 * MIB
    """``ClientConfig.add_window_bytes`` of the client."""


class Log:
    """One log. It stays the same one: after a deletion its methods raise NoSuchLogError, also if the name is used anew."""

    def __init__(self, logs: LogStore, name: str, uid: str, access: LedgerAccess) -> None:
        self._logs = logs
        self._name = name
        self._uid = uid
        self._access = access

    @property
    def name(self) -> str:
        return self._name

    @property
    def uid(self) -> str:
        """The random id that tells this log from others that had or will have its name."""
        return self._uid

    @property
    def retention(self) -> Retention:
        """What ``bk-spark log vacuum`` removes of this log."""
        return self._logs.names.head(self._name, self._uid).retention

    def set_retention(self, retention: Retention) -> None:
        """Replace the log's retention as a whole. Takes effect at the next vacuum."""
        self._logs.set_retention(self._name, self._uid, retention)

    def snapshot(self, version: int | None = None) -> LogSnapshot:
        """The log at ``version``, by default the newest. Raises NoSuchLogError, ConfigError."""
        snapshot = self._logs.reader.snapshot(self._name, version)
        self._check_same(snapshot.uid)
        return snapshot

    def ledgers(self) -> list[CommittedLedger | OpenLedger]:
        """The ledgers that the log lists now, in log order; at the end, as OpenLedger, those whose end is not recorded."""
        return list(self._listed())

    def versions(self) -> list[LogVersion]:
        """Every commit to the log that can still be read, oldest first."""
        self._check_same(self._logs.names.uid(self._name))
        return self._logs.reader.all_versions(self._name)

    # --- whole ledgers

    def append_ledgers(
        self, ledgers: Sequence[int | CommittedLedger], application: tuple[str, int] | None = None
    ) -> LogVersion:
        """List ledgers of entries at the end of the log, all at once. They must be CLOSED, and become this log's for good.

        A leader that has the log open for writing is displaced: what it confirmed stays, before these ledgers.
        ``application`` is an id and a version: if the log has that version of the id or a later one, the call changes
        nothing and the result's ``duplicate_of`` names the version that holds it.

        Raises SchemaMismatchError on a log of rows; NoSuchLedgerError, LedgerNotClosedError or ConfigError for a ledger
        that cannot be listed; NoSuchLogError; MetadataUnavailableError.
        """
        request = CommitRequest(CommitKind.APPEND, self._described(ledgers), application=application)
        return self._commit(request)

    def replace_ledgers(self, remove: Sequence[int], add: Sequence[int | CommittedLedger]) -> LogVersion:
        """Put ``add`` in the place of ``remove``, all at once; ``add`` may be empty.

        ``remove`` is one stretch of the log in its order, all of which must still be listed: MetadataConflictError
        otherwise. All else stays, also what others append meanwhile. In a log of rows only ledgers whose rows are
        given (CommittedLedger) can be added. Older versions keep listing what was removed. Errors as ``append_ledgers``.
        """
        by_id = [one for one in add if not isinstance(one, CommittedLedger)]
        if by_id and self.snapshot().content is Content.ROWS:
            problem = f"log '{self._name}' holds rows: give a CommittedLedger, which says how many rows it holds"
            raise ConfigError("a ledger to add", by_id[0], problem)
        return self._commit(CommitRequest(CommitKind.REPLACE, self._described(add), remove=tuple(remove)))

    def truncate(self, before: LogPosition) -> LogVersion:
        """Remove the ledgers whose entries are all before ``before``: older versions list them until the next vacuum.

        The last ledger of the log always stays. Gives the newest version where there is nothing to remove. Raises
        ConfigError for a position in a ledger that the log does not list; MetadataConflictError where a ledger that is to
        go was left open by its leader (``recover`` closes it) or where the log was changed meanwhile.
        """
        listed = self._listed()
        place = place_of(self._name, listed, "before", before)
        if place is None:
            raise ConfigError("before", before, "it must be a LogPosition: all that is before it goes")
        first = listed[place[0]]
        is_over = isinstance(first, CommittedLedger) and before.entry_id > first.last_entry_id
        if is_over and place[0] + 1 < len(listed):
            first = listed[place[0] + 1]
        return self._logs.truncate(self._name, self._uid, first.ledger_id)

    # --- entries

    def open_writer(
        self,
        ensemble_size: int = 3,
        write_quorum: int = 3,
        ack_quorum: int = 2,
        digest_type: DigestType | str = DigestType.CRC32C,
        *,
        roll_bytes: int = DEFAULT_ROLL_BYTES,
    ) -> LogWriteHandle:
        """Become the log's leader, which appends entries to it, and displace whoever was.

        The ledgers that a former leader left open are fenced and closed: it confirms nothing more, and what it had confirmed
        stays, before all that this leader appends. Nothing is appended before the log lists the new ledger. A ledger that
        holds ``roll_bytes`` (payloads, and 32 bytes for each entry) is followed by a new one, and takes what is appended
        until that one is listed: ``truncate`` and retention remove whole ledgers. The other options are stored with each
        ledger, as those of ``BookKeeper.create_ledger`` are; its password is the one that the log was opened with.

        Which process should lead is for the application to choose: two that take the log from each other again and again
        stay correct, and make little progress.

        Raises ConfigError for an option; SchemaMismatchError on a log of rows; NotEnoughBookiesError; BookieUnavailableError
        where a former leader's ledgers cannot be recovered now; NoSuchLogError; MetadataUnavailableError.
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
        leadership = Leadership(self._logs, self._name, self._uid, lambda job: create(options, job))
        return LogWriteHandle(leadership, leadership.take_over(), limits)

    def recover(self) -> LogVersion | None:
        """Fence and close what a leader left open, and record the ends: readers then see all that it confirmed.

        A leader that is still there is displaced. None, and nothing is done, where no ledger is open. Raises
        BookieUnavailableError or NotEnoughBookiesError where a ledger cannot be recovered now.
        """
        if not self._logs.names.head(self._name, self._uid).writer.open_ledgers:
            return None
        return self._commit(CommitRequest(CommitKind.APPEND))

    def read(self, start: LogPosition | None = None, end: LogPosition | None = None) -> Iterator[pa.RecordBatch]:
        """The log's entries as it lists them at the call, in log order, from ``start`` (included) to ``end`` (excluded).

        Open ledgers are read without disturbing their leader, as far as they are confirmed when the reading comes to them,
        and reading ends at the first one that is not CLOSED. Batches have the columns of a ledger's ``read``, and before
        them ``ledger_id``, so that each row has its LogPosition; none spans ledgers. Raises ConfigError for a position in a
        ledger that the log does not list; NoSuchLedgerError where a ledger was deleted underneath.
        """
        return LogRange.of(self._name, self._listed(), start, end).read(self._access.open_ledger)

    # --- the log itself

    def delete(self) -> None:
        """Delete the log and all its ledgers, those of old versions too. Called again, it finishes what was cut short."""
        self._logs.deleter.delete(self._name, self._uid)

    def _listed(self) -> tuple[CommittedLedger | OpenLedger, ...]:
        snapshot = self.snapshot()
        return (*snapshot.ledgers, *snapshot.open_ledgers)

    def _commit(self, request: CommitRequest) -> LogVersion:
        job = self._logs.jobs.begin(self._name)
        self._check_same(job.uid)
        return self._logs.commit_or_abort(job, request)

    def _described(self, ledgers: Sequence[int | CommittedLedger]) -> tuple[CommittedLedger, ...]:
        ids = [one for one in ledgers if not isinstance(one, CommittedLedger)]
        entries = {one.ledger_id: ledger_of_entries(one) for one in self._logs.ledgers.describe(ids)}
        return tuple(one if isinstance(one, CommittedLedger) else entries[one] for one in ledgers)

    def _check_same(self, uid: str) -> None:
        if uid != self._uid:
            raise NoSuchLogError(self._name)
