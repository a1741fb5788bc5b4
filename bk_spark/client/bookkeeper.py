"""BookKeeper: the client of a cluster. Creates, opens, lists and deletes ledgers and logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType

from bk_spark.client.ledger_handle import ReadHandle, WriteHandle
from bk_spark.client.log import Log
from bk_spark.client.log_jobs import WriteJob
from bk_spark.client.log_layout import LOG_TAG
from bk_spark.client.log_store import LogStore
from bk_spark.client.placement import choose_ensemble
from bk_spark.client.transport import Transport
from bk_spark.config import ClientConfig, DigestType, LedgerOptions
from bk_spark.errors import (
    ConfigError,
    LedgerExistsError,
    LedgerNotClosedError,
    MetadataUnavailableError,
    NoSuchLedgerError,
    UnauthorizedAccessError,
)
from bk_spark.ledger_metadata import LedgerMetadata, new_ledger
from bk_spark.metadata_store import (
    Create,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    TransactionFailedError,
    Versioned,
)
from bk_spark.registration import RegisteredBookie, check_layout, list_bookies
from bk_spark.wire import BookieDescription
from bk_spark.znodes import (
    MAX_LEDGER_ID,
    Znodes,
    is_ledger_directory,
    is_ledger_subdirectory,
    ledger_id_of,
    sequence_of,
)
from bk_spark.zookeeper import connect, parse_uri

MAX_CREATE_TRIES = 5
"""Creations of one ledger whose outcome stayed unknown, before the caller is told so."""


class BookKeeper:
    """A client of the cluster at ``metadata_uri``, such as ``zk://127.0.0.1:2181/ledgers``. Threads may share it.

    Raises ConfigError for a malformed URI and MetadataUnavailableError, after ``config.connect_timeout_s``, where no
    metadata store answers. Close it, or use it in a ``with`` statement.
    """

    def __init__(self, metadata_uri: str, config: ClientConfig | None = None) -> None:
        self.config = config or ClientConfig()
        _, root = parse_uri(metadata_uri)
        self._znodes = Znodes(root)
        self._store: MetadataStore = connect(
            metadata_uri,
            connect_timeout_s=self.config.connect_timeout_s,
            session_timeout_s=self.config.session_timeout_s,
        )
        try:
            check_layout(self._store, self._znodes)
            self._transport = Transport(self._store, self._znodes, self.config)
        except BaseException:
            self._store.close()
            raise
        self.logs = LogStore(self._store, self._znodes, self._transport.wall_clock_ms)
        """The logs' metadata: what the data source commits through."""

    # --- ledgers

    def create_ledger(
        self,
        ensemble_size: int = 3,
        write_quorum: int = 3,
        ack_quorum: int = 2,
        digest_type: DigestType | str = DigestType.CRC32C,
        password: bytes = b"",
        custom_metadata: Mapping[str, bytes] | None = None,
        *,
        job: WriteJob | None = None,
    ) -> WriteHandle:
        """Create a ledger and open it for writing.

        ``job`` ties it to the write of a log, which commits or deletes it. Raises ConfigError unless E ≥ Qw ≥ Qa ≥ 1,
        NotEnoughBookiesError with fewer than E writable bookies.
        """
        options = LedgerOptions(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            digest_type=_digest_type(digest_type),
            password=password,
            custom_metadata=dict(custom_metadata or {}),
        )
        writable = [bookie.bookie_id for bookie in self.list_bookies() if not bookie.read_only]
        ensemble = choose_ensemble(writable, ensemble_size, self._transport.choose)
        if job is not None:
            self.logs.ensure_job(job)
            options = replace(options, custom_metadata={**options.custom_metadata, **job.ledger_tags()})
        metadata = self._create(options, ensemble, job)
        return WriteHandle(self._transport, metadata, version=0)

    def open_ledger(self, ledger_id: int, password: bytes = b"", recover: bool = True) -> ReadHandle:
        """Open a ledger for reading.

        A closed ledger can be read to its end. An open one can be read as far as its writer has told the bookies
        (``recover=False``), which never disturbs the writer. To recover an open ledger is not possible in this version:
        with ``recover=True`` it raises LedgerNotClosedError. Raises NoSuchLedgerError, UnauthorizedAccessError.
        """
        metadata = self.ledger_metadata(ledger_id)
        if metadata.password != password:
            raise UnauthorizedAccessError(ledger_id)
        if recover and not metadata.is_closed:
            raise LedgerNotClosedError(ledger_id, metadata.state.name)
        handle = ReadHandle(self._transport, metadata)
        handle.read_last_add_confirmed()
        return handle

    def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        """Raises NoSuchLedgerError."""
        return self.ledger_metadata_many([ledger_id])[0]

    def ledger_metadata_many(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata]:
        """The metadata of many ledgers, in their order, for about the price of one. Raises NoSuchLedgerError."""
        for ledger_id in ledger_ids:
            if not isinstance(ledger_id, int) or isinstance(ledger_id, bool):
                raise ConfigError("a ledger id", ledger_id, "it must be a whole number")
            if not 0 <= ledger_id <= MAX_LEDGER_ID:
                raise NoSuchLedgerError(ledger_id)
        found = self._store.get_many([self._znodes.ledger(ledger_id) for ledger_id in ledger_ids])
        return [_decoded(ledger_id, value) for ledger_id, value in zip(ledger_ids, found, strict=True)]

    def existing_ledgers(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata]:
        """As ``ledger_metadata_many``, without those that do not exist (any more)."""
        found = self._store.get_many([self._znodes.ledger(ledger_id) for ledger_id in ledger_ids])
        pairs = zip(ledger_ids, found, strict=True)
        return [LedgerMetadata.decode(ledger_id, value.value) for ledger_id, value in pairs if value is not None]

    def list_ledgers(self) -> Iterator[int]:
        """The ids of all ledgers, ascending."""
        root = self._znodes.root
        for directory in filter(is_ledger_directory, self._children(root)):
            for subdirectory in filter(is_ledger_subdirectory, self._children(f"{root}/{directory}")):
                for name in self._children(f"{root}/{directory}/{subdirectory}"):
                    ledger_id = ledger_id_of(directory, subdirectory, name)
                    if ledger_id is not None:
                        yield ledger_id

    def delete_ledger(self, ledger_id: int, force: bool = False) -> None:
        """Delete a ledger for good. Raises NoSuchLedgerError.

        A ledger that was written for a log, whether the log lists it or not, is only deleted with ``force``: a log that
        lists a ledger that is gone cannot be read. Raises ConfigError without.
        """
        log = self.ledger_metadata(ledger_id).custom(LOG_TAG)
        if log is not None and not force:
            remedy = f"it belongs to the log with uid {log.decode(errors='replace')}: delete the log, or force it"
            raise ConfigError("ledger to delete", ledger_id, remedy)
        try:
            self._store.delete(self._znodes.ledger(ledger_id))
        except NoNodeError:
            raise NoSuchLedgerError(ledger_id) from None

    def list_bookies(self) -> list[RegisteredBookie]:
        """The registered bookies, by id."""
        return list_bookies(self._store, self._znodes)

    def describe_bookie(self, bookie_id: str) -> BookieDescription | None:
        """What a bookie says of itself; None if it does not answer within ``config.read_timeout_s``."""
        return self._transport.describe(bookie_id)

    # --- logs

    def open_log(self, name: str, create: bool = False, password: bytes = b"") -> Log:
        """Open a log; ``create`` makes an empty one where there is none. ``password`` is that of its ledgers.

        Raises NoSuchLogError.
        """
        uid = self.logs.open(name, create=create)
        return Log(self.logs, name, uid, lambda ledger_id: self.open_ledger(ledger_id, password, recover=False))

    def list_logs(self) -> list[str]:
        """The names of all logs, ascending."""
        return self.logs.names()

    # --- the client itself

    def close(self) -> None:
        """End all connections. Handles of this client are of no use afterwards."""
        self._transport.close()
        self._store.close()

    def __enter__(self) -> BookKeeper:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _create(self, options: LedgerOptions, ensemble: tuple[str, ...], job: WriteJob | None) -> LedgerMetadata:
        for _ in range(MAX_CREATE_TRIES):
            metadata = new_ledger(
                self._new_ledger_id(),
                options,
                ensemble,
                created_ms=self._transport.wall_clock_ms(),
                creator_token=self._transport.choose(2**62),
            )
            try:
                self._create_once(metadata, job)
                return metadata
            except MetadataUnavailableError as failure:
                unknown = failure
                if self._is_mine(metadata):
                    return metadata
        raise unknown

    def _create_once(self, metadata: LedgerMetadata, job: WriteJob | None) -> None:
        path = self._znodes.ledger(metadata.ledger_id)
        self._store.ensure_path(path.rsplit("/", 1)[0])
        operations = self.logs.ledger_operations(job, metadata.ledger_id) if job is not None else []
        try:
            self._store.transaction([Create(path, metadata.encode()), *operations])
        except TransactionFailedError as failure:
            if failure.index == 0 and isinstance(failure.reason, NodeExistsError):
                raise LedgerExistsError(metadata.ledger_id) from None
            ended = self.logs.creation_refused(job, failure) if job is not None else None
            raise ended or failure from None

    def _is_mine(self, metadata: LedgerMetadata) -> bool:
        """Whether a creation without an answer took effect: then the stored value carries this creation's token."""
        found = self._store.get_many([self._znodes.ledger(metadata.ledger_id)])[0]
        return found is not None and _decoded(metadata.ledger_id, found).creator_token == metadata.creator_token

    def _new_ledger_id(self) -> int:
        path = self._store.create_sequential(self._znodes.id_prefix, ephemeral=True)
        with suppress(NoNodeError, MetadataUnavailableError):  # it is ephemeral: at the latest it goes with this session
            self._store.delete(path)
        return sequence_of(path)

    def _children(self, path: str) -> list[str]:
        try:
            return self._store.children(path)
        except NoNodeError:
            return []


def _decoded(ledger_id: int, value: Versioned | None) -> LedgerMetadata:
    if value is None:
        raise NoSuchLedgerError(ledger_id)
    return LedgerMetadata.decode(ledger_id, value.value)


def _digest_type(given: DigestType | str) -> DigestType:
    if isinstance(given, DigestType):
        return given
    try:
        return DigestType[given.upper()]
    except KeyError:
        raise ConfigError("digest type (digestType)", given, "it must be CRC32C or HMAC") from None
