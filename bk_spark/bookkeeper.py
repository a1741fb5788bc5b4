"""BookKeeper: the client of a cluster. Creates, opens, lists and deletes ledgers and logs, and reads Pulsar's topics."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from bk_spark.calls.forks import check_process, is_forked
from bk_spark.calls.off_main_thread import in_thread, off_main_thread, owned_result
from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.client.ledger.recovery_on_open import recovered
from bk_spark.client.ledger.write_handle import AdvWriteHandle, WriteHandle
from bk_spark.config import ClientConfig, DigestType, LedgerOptions
from bk_spark.embedded.join import advice_for, resolve, with_own_files
from bk_spark.entries.log_secret import LogSecret
from bk_spark.errors import ConfigError, MetadataConflictError, MetadataUnavailableError, State, UnauthorizedAccessError
from bk_spark.log.changes.jobs import WriteJob
from bk_spark.log.cleanup.orphans import OLDER_THAN_S, Orphan, Orphans
from bk_spark.log.cleanup.vacuum import LogVacuum, VacuumReport
from bk_spark.log.log_handle import LedgerAccess, Log, create_with_rows
from bk_spark.log.log_store import LogStore
from bk_spark.log.log_transaction import LogTransaction
from bk_spark.log.rows.count_rows import count_rows
from bk_spark.log.rows.key_lanes import AskedLanes
from bk_spark.log.rows.read_rows import RowQuery
from bk_spark.log.rows.several_logs import SeveralLogs, logs_at, snapshot_of
from bk_spark.log.stored.tier_settings import Tier
from bk_spark.log.stored.values import LogVersion
from bk_spark.log.tier.opener import LogLedgerOpener
from bk_spark.metadata.ledger_metadata import LOG_TAG, LedgerMetadata, new_ledger
from bk_spark.metadata.registration import RegisteredBookie, list_bookies, open_root
from bk_spark.metadata.store import MetadataStore, TransactionFailedError
from bk_spark.metadata.uri import parse_uri
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import ZooKeeperStore, connect_with
from bk_spark.progress import Progress, no_progress
from bk_spark.tls.files import check_files
from bk_spark.topic.access import TopicAccess
from bk_spark.topic.roots import PulsarRoot, pulsar_root
from bk_spark.topic.topic import Topic
from bk_spark.wire.messages import AdministerReply, AdminOperation, BookieDescription

if TYPE_CHECKING:
    from bk_spark.lake.tier_log import TierReport

MAX_CREATE_TRIES = 5
"""Tries to create one ledger while the outcome stays unknown, before the caller gets the error."""

_DELETE_TRIES = 10
"""Each further try means that somebody changed the ledger's metadata, which happens a few times in its life."""


class BookKeeper:
    """A client of the cluster at ``metadata_uri``, such as ``zk://127.0.0.1:2181/ledgers``. Threads may share it.

    ``embedded:DIR`` is a cluster of this machine in the directory DIR: it starts at its first use, its users share it, and it
    ends after the last one. With ``embedded:DIR?tls=true`` it makes certificates, and only who can read DIR is served.

    Raises ConfigError for a malformed URI and for such a cluster that does not start, MetadataUnavailableError if no metadata
    store answers within ``config.connect_timeout_s``. Close it, or use it in a ``with`` statement.
    """

    def __init__(self, metadata_uri: str, config: ClientConfig | None = None) -> None:
        given = config or ClientConfig()
        check_files(given)
        self._opened: Final = owned_result(lambda: _Opened.at(metadata_uri, given), _Opened.close)
        self.metadata_store: Final = self._opened.store
        """The client's session with the metadata store, for tools that look at a whole cluster. It ends with the client."""
        self.znodes: Final = self._opened.znodes
        """Where things are in the metadata store."""
        self.context: Final = self._opened.context
        """The client's connections to bookies, for what re-replicates ledgers. They end with the client."""
        self.config: Final = self.context.config
        self._ledgers = LedgerStore(self.metadata_store, self.znodes)
        self.logs = LogStore(
            self.metadata_store,
            self.znodes,
            self.context.wall_clock_ms,
            recover_ledger=self._recover_ledger,
            count_rows=self._count_rows,
        )
        """The logs' metadata: what the data source commits through."""
        self._uri = self._opened.uri
        self._pulsars: dict[PulsarRoot, MetadataStore] = {}
        self._pulsars_lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<BookKeeper at {self._uri}, {'closed' if self.context.is_closed else 'open'}>"

    # Ledgers

    def create_ledger(
        self,
        ensemble_size: int = 3,
        write_quorum: int = 3,
        ack_quorum: int = 2,
        digest_type: DigestType | str = DigestType.CRC32C,
        password: bytes = b"",
        custom_metadata: Mapping[str, bytes] | None = None,
        *,
        deferred_sync: bool = False,
        job: WriteJob | None = None,
    ) -> WriteHandle:
        """Create a ledger and open it for writing.

        With ``deferred_sync`` an append is done once its entries are in the memory of an ack quorum. Only ``force`` makes
        them durable, and visible to readers; and the ledger's ensemble cannot change. ``job`` ties the ledger to a write
        to a log, which commits or deletes it. Raises ConfigError unless E ≥ Qw ≥ Qa ≥ 1; NotEnoughBookiesError with fewer
        than E writable bookies; MetadataUnavailableError.
        """
        options = ledger_options(ensemble_size, write_quorum, ack_quorum, digest_type, password, custom_metadata)
        self._opened.is_needed = True
        return WriteHandle(self.context, self._create(options, job), version=0, deferred_sync=deferred_sync)

    def create_ledger_adv(
        self,
        ensemble_size: int = 3,
        write_quorum: int = 3,
        ack_quorum: int = 2,
        digest_type: DigestType | str = DigestType.CRC32C,
        password: bytes = b"",
        custom_metadata: Mapping[str, bytes] | None = None,
        *,
        deferred_sync: bool = False,
    ) -> AdvWriteHandle:
        """As ``create_ledger``, for an application that gives the entry ids itself: ``append(entry_id, payload)``."""
        options = ledger_options(ensemble_size, write_quorum, ack_quorum, digest_type, password, custom_metadata)
        self._opened.is_needed = True
        return AdvWriteHandle(self.context, self._create(options, None), version=0, deferred_sync=deferred_sync)

    def open_ledger(
        self, ledger_id: int, password: bytes = b"", recover: bool = True, *, of_application: str = ""
    ) -> ReadHandle:
        """Open a ledger for reading.

        With ``recover=True`` a ledger that is not closed is taken from its writer. It is fenced, so that the writer confirms
        nothing more, and closed after the last entry that may have been confirmed. Call it again after any error: until it
        succeeds the ledger stays IN_RECOVERY and takes no entries. With ``recover=False`` the writer is never disturbed,
        and the ledger can be read as far as it is confirmed.

        A ledger whose custom metadata says that an application owns it, such as Apache Pulsar, is recovered only if
        ``of_application`` names that application: its writer would be fenced. Otherwise ConfigError is raised.

        Raises NoSuchLedgerError; UnauthorizedAccessError (a wrong password fences nothing); BookieUnavailableError if too
        few bookies answer to tell how far the ledger is confirmed; NotEnoughBookiesError or AddQuorumTimeoutError if recovery
        cannot write the ledger's last entries back; MetadataConflictError; MetadataUnavailableError.
        """
        self._opened.is_needed = True
        metadata, version = self._ledgers.versioned(ledger_id)
        if not metadata.is_opened_by(password):
            raise UnauthorizedAccessError(ledger_id)
        if recover:
            metadata = recovered(self.context, self._ledgers, metadata, version, of_application)
        handle = ReadHandle(self.context, self._ledgers, metadata)
        handle.begin()
        return handle

    def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        """Raises NoSuchLedgerError."""
        return self._ledgers.metadata(ledger_id)

    def ledger_metadata_many(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata]:
        """The metadata of many ledgers, in their order, for about the price of one. Raises NoSuchLedgerError."""
        return self._ledgers.metadata_many(ledger_ids)

    def existing_ledgers(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata]:
        """As ``ledger_metadata_many``, without those that do not exist (any more)."""
        return self._ledgers.existing(ledger_ids)

    def list_ledgers(self, first: int = 0) -> Iterator[int]:
        """The ids of all ledgers from ``first`` on, ascending. They are listed bit by bit: millions need no memory."""
        return self._ledgers.ids(first - 1)

    def delete_ledger(self, ledger_id: int, force: bool = False, *, of_application: str = "") -> None:
        """Delete a ledger for good. Raises NoSuchLedgerError.

        Without ``force``, raises ConfigError for a ledger that was written for a log, listed or not: the log may need it. So
        it does for a ledger of an application that ``of_application`` does not name. A ledger that a log adopts at the same
        moment is the log's, or gone before: never both. Raises MetadataConflictError if the ledger changes all the time.
        """
        for _ in range(_DELETE_TRIES):
            metadata = self.ledger_metadata(ledger_id)
            metadata.check_may_change(of_application)
            log = metadata.custom(LOG_TAG)
            if log is not None and not force:
                remedy = f"it belongs to the log with uid {log.decode(errors='replace')}: delete the log, or force it"
                raise ConfigError("ledger to delete", ledger_id, remedy)
            if self._ledgers.delete(metadata):
                return
        raise MetadataConflictError(f"ledger {ledger_id}", f"{_DELETE_TRIES} tries to delete it met a change: close it first")

    # Bookies

    def list_bookies(self) -> list[RegisteredBookie]:
        """The registered bookies, by id."""
        return list_bookies(self.metadata_store, self.znodes)

    def describe_bookie(self, bookie_id: str) -> BookieDescription | None:
        """A bookie's description of itself; None if it does not answer within ``config.read_timeout_s``."""
        return self.context.describe(bookie_id)

    def administer_bookie(self, bookie_id: str, operation: AdminOperation, ledger_ids: Sequence[int] = ()) -> AdministerReply:
        """Ask a bookie to collect garbage, to scrub, to be read-only, or for its state.

        UNKNOWN if no answer came in ``config.read_timeout_s``. The work continues after the answer; asking again is harmless.
        Only LIMBO_END takes ``ledger_ids``: from then on the bookie may deny entries of these ledgers that it lost.
        """
        return self.context.administer(bookie_id, operation, ledger_ids)

    # Logs

    def open_log(self, name: str, create: bool = False, password: bytes = b"") -> Log:
        """Open a log; ``create`` makes a missing one, empty. ``password`` is that of its ledgers. Raises NoSuchLogError."""
        self._opened.is_needed = True
        uid = self.logs.open(name, create=create)
        return Log(self.logs, name, uid, self._log_access(password))

    def append_rows(
        self,
        name: str,
        rows: Any,
        application: tuple[str, int] | None = None,
        *,
        create: bool = False,
        merge_schema: bool = False,
        partition_key: str | Sequence[str] | None = None,
        lanes: int | None = None,
        password: bytes = b"",
    ) -> LogVersion:
        """Append rows to the log ``name`` in one atomic commit; with ``create`` the same commit makes a missing log.

        So an append that fails leaves no empty log, as ``open_log(name, create=True)`` before it would. Arguments and errors
        are those of ``open_log`` and ``Log.append_rows``.
        """
        if create and self.logs.names.find_usable(name) is None:
            access, asked = self._log_access(password), AskedLanes.of(partition_key, lanes)
            return create_with_rows(self.logs, name, access, rows, application, merge_schema=merge_schema, asked=asked)
        log = self.open_log(name, password=password)
        return log.append_rows(rows, application, merge_schema=merge_schema, partition_key=partition_key, lanes=lanes)

    def transaction(self, application: tuple[str, int] | None = None, *, password: bytes = b"") -> LogTransaction:
        """Changes to several logs at once: ``with client.transaction() as t: t.append_rows("orders", rows); …``.

        The end of the block makes all changes visible in one step; if the block raises, there are none. ``application`` is an
        id and a version, as in ``Log.append_rows``, that count for the whole transaction: a block that is repeated changes
        nothing. ``password`` is that of all ledgers. Raises ConfigError.
        """
        self._opened.is_needed = True
        return LogTransaction(self.logs, self._log_access(password), application)

    def versions_of(self, logs: Sequence[str], timestamp: datetime | None = None) -> dict[str, int]:
        """The version of each of several logs: now, or at ``timestamp``, a datetime with a time zone.

        Each transaction is in all of these versions, or in none: read them with ``Log.read_rows(version=…)``. Raises
        NoSuchLogError; ConfigError for 1,001 logs, and for a time that one of the logs does not keep any more.
        """
        return {one.name: one.version for one in logs_at(self.logs, logs, timestamp)}

    def read_rows(
        self,
        logs: Sequence[str],
        columns: Sequence[str] | None = None,
        where: str | None = None,
        timestamp: datetime | None = None,
        *,
        time_zone: str | None = None,
        password: bytes = b"",
    ) -> pa.RecordBatchReader:
        """The rows of several logs, log after log, at the versions of ``versions_of``.

        The columns are those of all logs; one that a log lacks is null in its rows. The other arguments, and what is in
        memory, are those of ``Log.read_rows``. Raises SchemaMismatchError for columns that cannot be one, otherwise as it does.
        """
        snapshots = [snapshot_of(self.logs, one) for one in logs_at(self.logs, logs, timestamp)]
        openers = {one.name: self.log_opener(one.name, one.uid, password) for one in snapshots}
        return SeveralLogs(snapshots, openers, RowQuery(columns, where, time_zone)).read()

    def _log_access(self, password: bytes) -> LedgerAccess:
        return LedgerAccess(
            lambda ledger_id: self.open_ledger(ledger_id, password, recover=False),
            lambda options, job: WriteHandle(self.context, self._create(options, job), version=0),
            password,
            self.config.add_window_bytes,
            self.config.add_batch_bytes,
            self.config.append_wait_s,
            existing_ledgers=self.existing_ledgers,
            tables=_TierTables(),
        )

    def list_logs(self) -> list[str]:
        """The names of all logs, ascending."""
        return self.logs.names.all()

    def vacuum_log(self, name: str, progress: Progress = no_progress) -> VacuumReport:
        """Delete what a log's retention no longer keeps: see ``LogVacuum``. Raises NoSuchLogError."""
        return LogVacuum(self.logs, progress).run(name)

    def tier_log(self, name: str, password: bytes = b"", progress: Progress = no_progress) -> TierReport:
        """Copy the rows of a log's closed ledgers to its tier, and delete ledgers that have been there for long enough.

        ``progress`` is called during each step, with rows and then with bytes of the files that are read back.

        Raises ConfigError for a log without a tier, NoSuchLogError, and what ``Tiering.run`` raises.
        """

        from bk_spark.lake.tier_log import Tiering

        return Tiering(self.log_opener(name, self.logs.names.uid(name), password), progress).run()

    def log_opener(self, name: str, uid: str, password: bytes = b"") -> LogLedgerOpener:
        """Opens the ledgers of a log, wherever they are."""
        return LogLedgerOpener(self.logs, name, uid, self._log_access(password).open_ledger)

    def find_orphans(self, older_than_s: int = OLDER_THAN_S, progress: Progress = no_progress) -> Iterator[Orphan]:
        """What failed and interrupted writes have left of all logs, and nobody has touched for so long."""
        return Orphans(self.logs, progress).find(older_than_s)

    def sweep_orphans(self, older_than_s: int = OLDER_THAN_S, progress: Progress = no_progress) -> Iterator[Orphan]:
        """Remove them, each when the iterator comes to it. Running jobs, and what they wrote, stay."""
        return Orphans(self.logs, progress).sweep(older_than_s)

    # Topics of Pulsar

    def open_topic(
        self,
        name: str,
        *,
        pulsar_metadata: str | None = None,
        password: bytes = b"",
        offload_endpoint: str | None = None,
    ) -> Topic:
        """Open a topic of Apache Pulsar to read it, such as ``persistent://public/default/orders``. Nothing of it is changed.

        ``pulsar_metadata`` is Pulsar's root in ZooKeeper, ``zk://host:port[/root]``; by default it is the parent of
        BookKeeper's own root. ``password`` is that of Pulsar's ledgers. ``offload_endpoint`` is the endpoint of
        the object store that has copies of them, in place of the one that Pulsar noted. Raises NoSuchTopicError, ConfigError,
        MetadataUnavailableError.
        """
        return Topic(self.topic_access(pulsar_metadata, password, offload_endpoint), name)

    def topic_access(
        self, pulsar_metadata: str | None = None, password: bytes = b"", offload_endpoint: str | None = None
    ) -> TopicAccess:
        """What reading topics may do: see ``open_topic``. Raises ConfigError, MetadataUnavailableError."""
        self._opened.is_needed = True
        root = pulsar_root(self._uri, pulsar_metadata)
        return TopicAccess(
            self._pulsar_store(root),
            root.root,
            lambda ledger_id: self.open_ledger(ledger_id, password, recover=False),
            offload_endpoint,
        )

    def close(self) -> None:
        """End all connections. Handles of this client cannot be used afterwards. An interrupted close goes on to its end."""
        check_process()
        self.context.check_may_wait()
        off_main_thread(self._close)

    def _close(self) -> None:
        self._opened.close()
        with self._pulsars_lock:
            others, self._pulsars = self._pulsars, {}
        for store in others.values():
            store.close()

    def __enter__(self) -> BookKeeper:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _pulsar_store(self, root: PulsarRoot) -> MetadataStore:
        """The session with the servers that hold Pulsar's metadata: this client's own, where they are the same."""
        if root.is_beside(self._uri):
            return self.metadata_store
        with self._pulsars_lock:
            if root not in self._pulsars:
                self._pulsars[root] = connect_with(root.uri, self.config)
            return self._pulsars[root]

    def _recover_ledger(self, ledger_id: int) -> LedgerMetadata:
        """Take a log's ledger from its leader. Whoever may commit to the log may do so, without a password."""
        metadata, version = self._ledgers.versioned(ledger_id)
        return recovered(self.context, self._ledgers, metadata, version)

    def _count_rows(self, metadata: LedgerMetadata) -> int:
        return count_rows(ReadHandle(self.context, self._ledgers, metadata))

    def _create(self, options: LedgerOptions, job: WriteJob | None) -> LedgerMetadata:
        jobs = self.logs.jobs
        secret = None if job is None else jobs.ensure(job)
        if job is not None:
            if secret is not None and options.password:
                remedy = f"log '{job.log_name}' is secured, and its ledgers have keys: leave the password out"
                raise ConfigError("the password for the log", State("(not shown)"), remedy)
            options = replace(options, custom_metadata={**options.custom_metadata, **job.ledger_tags()})
        for remaining in reversed(range(MAX_CREATE_TRIES)):
            try:
                made = self._try_to_create(options, job, secret, is_last=remaining == 0)
            except TransactionFailedError as failure:
                if remaining == 0 or job is None or not jobs.has_other_readers(job, failure):
                    raise
                made, secret = None, jobs.ensure(job)
            if made is not None:
                return made
        raise AssertionError("the last try returns or raises")

    def _try_to_create(
        self, options: LedgerOptions, job: WriteJob | None, secret: LogSecret | None, *, is_last: bool
    ) -> LedgerMetadata | None:
        """None if the outcome is unknown, and this is not the last try. A ledger of this try is listed nowhere then."""
        jobs = self.logs.jobs
        with self._ledgers.new_id() as issued:
            metadata = new_ledger(
                issued.ledger_id,
                options,
                self.context.choose_ensemble(options.ensemble_size, options.write_quorum),
                created_ms=self.context.wall_clock_ms(),
                creator_token=1 + self.context.choose(2**62),
                secret=None if secret is None else secret.secret,
            )
            readers = () if secret is None else secret.readers
            try:
                changes = [] if job is None else jobs.creation_of_ledger(job, metadata.ledger_id, secret)
                self._ledgers.create(
                    metadata, changes, lambda refusal: None if job is None else jobs.explain(job, refusal), issued, readers
                )
            except MetadataUnavailableError:
                if is_last:
                    raise
                return None
            return metadata


@dataclass(slots=True, eq=False)
class _Opened:
    """What a client has open. If the client is dropped before it gave out a handle, as one whose caller was interrupted when it
    was about to get it, nobody can use this any more, or close it: then it closes itself."""

    uri: str
    store: ZooKeeperStore
    znodes: Znodes
    context: ClientContext
    is_needed: bool = False
    """Whether handles need it; or it was closed."""

    @classmethod
    def at(cls, metadata_uri: str, config: ClientConfig) -> _Opened:
        uri = resolve(metadata_uri)
        _, root = parse_uri(uri)
        config = with_own_files(uri, config)
        store = connect_with(uri, config, advice_for(uri))
        try:
            znodes = open_root(store, root)
            return cls(uri, store, znodes, ClientContext(store, znodes, config))
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        self.is_needed = True
        self.context.close()
        self.store.close()

    def __del__(self) -> None:
        if not self.is_needed and not is_forked() and not sys.is_finalizing():
            in_thread(_Opened(self.uri, self.store, self.znodes, self.context).close)


class _TierTables:
    """Imports what reads and writes Parquet where it is needed: others need not wait for it."""

    def set_tier(self, opener: LogLedgerOpener, tier: Tier) -> None:
        from bk_spark.lake.tier_log import set_tier

        set_tier(opener, tier)

    def drop_table(self, opener: LogLedgerOpener) -> None:
        from bk_spark.lake.tier_log import drop_table

        drop_table(opener)


def ledger_options(
    ensemble_size: int,
    write_quorum: int,
    ack_quorum: int,
    digest_type: DigestType | str,
    password: bytes,
    custom_metadata: Mapping[str, bytes] | None,
) -> LedgerOptions:
    """The arguments of ``create_ledger``, checked. Raises ConfigError."""
    return LedgerOptions(
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        digest_type=DigestType.of(digest_type),
        password=password,
        custom_metadata=dict(custom_metadata or {}),
    )
