"""AsyncBookKeeper: the client of a cluster for coroutines."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from types import TracebackType
from typing import TypeVar

from bk_spark.aio.calls import Calls, in_own_thread
from bk_spark.aio.log import AsyncLog
from bk_spark.aio.reader import AsyncReadHandle
from bk_spark.aio.transaction import AsyncLogTransaction
from bk_spark.aio.writer import AsyncAdvWriteHandle, AsyncWriteHandle
from bk_spark.bookkeeper import BookKeeper, ledger_options
from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.client.ledger.recovery_on_open import recover as recover_ledger
from bk_spark.config import ClientConfig, DigestType, LedgerOptions
from bk_spark.errors import BookKeeperError, UnauthorizedAccessError
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.registration import RegisteredBookie

LISTED_AT_ONCE = 1_000
"""Ids of ledgers that one call takes from the listing: some tens of milliseconds of a thread."""


_Writer = TypeVar("_Writer", AsyncWriteHandle, AsyncAdvWriteHandle)


class _Client(BookKeeper):
    """A client whose appends stand in line, with what the handles of coroutines need of it."""

    def __init__(self, metadata_uri: str, config: ClientConfig | None) -> None:
        super().__init__(metadata_uri, config)
        self.context.appends_stand_in_line = True

    @property
    def ledgers(self) -> LedgerStore:
        return self._ledgers

    def create(self, options: LedgerOptions) -> LedgerMetadata:
        return self._create(options, None)


async def connect(metadata_uri: str, config: ClientConfig | None = None) -> AsyncBookKeeper:
    """Open a client of the cluster at ``metadata_uri``, such as ``zk://127.0.0.1:2181/ledgers``, for the running event loop.

    Close it, or use it in an ``async with`` statement. Arguments and errors are those of ``bk_spark.BookKeeper``.
    """
    calls = Calls()
    opening = in_own_thread(lambda: _Client(metadata_uri, config))
    try:
        return AsyncBookKeeper(await calls.outcome(opening), calls)
    except BaseException:
        calls.end()
        in_own_thread(lambda: _close_unwanted(opening))
        raise


def _close_unwanted(opening: Future[_Client]) -> None:
    """Nobody waits any more for a client that is still connecting; one that failed to connect has closed itself."""
    if opening.exception() is None:
        opening.result().close()


class AsyncBookKeeper:
    """A client of one cluster, for the event loop that ``connect`` was called on. The tasks of that loop may share it.

    The methods have the names, arguments and errors of ``bk_spark.BookKeeper``. A cancelled call that changes something, such
    as ``create_ledger`` or ``delete_ledger``, may take effect all the same.
    """

    def __init__(self, client: _Client, calls: Calls) -> None:
        self._client = client
        self._calls = calls
        self._closed: Future[None] | None = None

    def __repr__(self) -> str:
        return f"<AsyncBookKeeper at {self._client.metadata_store.uri}, {'open' if self._closed is None else 'closed'}>"

    @property
    def config(self) -> ClientConfig:
        return self._client.config

    # Ledgers

    async def create_ledger(
        self,
        ensemble_size: int = 3,
        write_quorum: int = 3,
        ack_quorum: int = 2,
        digest_type: DigestType | str = DigestType.CRC32C,
        password: bytes = b"",
        custom_metadata: Mapping[str, bytes] | None = None,
        *,
        deferred_sync: bool = False,
    ) -> AsyncWriteHandle:
        """As ``BookKeeper.create_ledger``. If the call is cancelled an empty ledger may be left."""
        options = ledger_options(ensemble_size, write_quorum, ack_quorum, digest_type, password, custom_metadata)
        return await self._created(AsyncWriteHandle, options, deferred_sync=deferred_sync)

    async def create_ledger_adv(
        self,
        ensemble_size: int = 3,
        write_quorum: int = 3,
        ack_quorum: int = 2,
        digest_type: DigestType | str = DigestType.CRC32C,
        password: bytes = b"",
        custom_metadata: Mapping[str, bytes] | None = None,
        *,
        deferred_sync: bool = False,
    ) -> AsyncAdvWriteHandle:
        """As ``create_ledger``, for an application that gives the entry ids itself: ``append(entry_id, payload)``."""
        options = ledger_options(ensemble_size, write_quorum, ack_quorum, digest_type, password, custom_metadata)
        return await self._created(AsyncAdvWriteHandle, options, deferred_sync=deferred_sync)

    async def open_ledger(
        self, ledger_id: int, password: bytes = b"", recover: bool = True, *, of_application: str = ""
    ) -> AsyncReadHandle:
        """As ``BookKeeper.open_ledger``. A cancelled recovery stops where it is; the next one goes on from there."""
        client, calls = self._client, self._calls
        metadata, version = await calls.in_thread(lambda: client.ledgers.versioned(ledger_id))
        if not metadata.is_opened_by(password):
            raise UnauthorizedAccessError(ledger_id)
        if recover:
            work = recover_ledger(client.context, client.ledgers, metadata, version, of_application)
            metadata = await calls.on_client(client.context, work)
        handle = AsyncReadHandle(client.context, calls, client.ledgers, metadata)
        await handle.begin()
        return handle

    async def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        """Raises NoSuchLedgerError."""
        return await self._calls.in_thread(lambda: self._client.ledger_metadata(ledger_id))

    async def ledger_metadata_many(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata]:
        """The metadata of many ledgers, in their order, for about the price of one. Raises NoSuchLedgerError."""
        return await self._calls.in_thread(lambda: self._client.ledger_metadata_many(ledger_ids))

    async def existing_ledgers(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata]:
        """As ``ledger_metadata_many``, without those that do not exist (any more)."""
        return await self._calls.in_thread(lambda: self._client.existing_ledgers(ledger_ids))

    async def list_ledgers(self, first: int = 0) -> AsyncGenerator[int, None]:
        """The ids of all ledgers from ``first`` on, ascending. They are listed bit by bit: millions need no memory."""
        ids = self._client.list_ledgers(first)
        while some := await self._calls.in_thread(lambda: list(islice(ids, LISTED_AT_ONCE))):
            for ledger_id in some:
                yield ledger_id

    async def delete_ledger(self, ledger_id: int, force: bool = False, *, of_application: str = "") -> None:
        """Delete a ledger for good, as ``BookKeeper.delete_ledger``. Raises NoSuchLedgerError, ConfigError."""
        await self._calls.in_thread(lambda: self._client.delete_ledger(ledger_id, force, of_application=of_application))

    async def list_bookies(self) -> list[RegisteredBookie]:
        """The registered bookies, by id."""
        return await self._calls.in_thread(self._client.list_bookies)

    # Logs

    async def open_log(self, name: str, create: bool = False, password: bytes = b"") -> AsyncLog:
        """Open a log; ``create`` makes a missing one, empty. ``password`` is that of its ledgers. Raises NoSuchLogError."""
        log = await self._calls.in_thread(lambda: self._client.open_log(name, create, password))
        window_bytes = self.config.add_window_bytes
        return AsyncLog(log, self._calls, lambda ledger_id: self.open_ledger(ledger_id, password, recover=False), window_bytes)

    def transaction(self, application: tuple[str, int] | None = None, *, password: bytes = b"") -> AsyncLogTransaction:
        """Changes to several logs at once, as ``BookKeeper.transaction``: ``async with client.transaction() as t: …``."""
        return AsyncLogTransaction(self._client.transaction(application, password=password), self._calls)

    async def list_logs(self) -> list[str]:
        """The names of all logs, ascending."""
        return await self._calls.in_thread(self._client.list_logs)

    async def close(self) -> None:
        """End all connections. Whatever still waits fails; handles of this client cannot be used afterwards.

        If the wait is cancelled the client is closed all the same. A second close waits for the first.
        """
        self._calls.loop.check()
        if self._closed is None:
            self._calls.end()
            self._closed = in_own_thread(self._client.close)
        await self._calls.outcome(self._closed)

    async def __aenter__(self) -> AsyncBookKeeper:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close. If the block raised an error, that error is raised, and an error of close becomes a note on it."""
        try:
            await self.close()
        except BookKeeperError as problem:
            if error is None:
                raise
            error.add_note(f"closing the client failed as well: {problem}")

    async def _created(self, kind: type[_Writer], options: LedgerOptions, *, deferred_sync: bool) -> _Writer:
        metadata = await self._calls.in_thread(lambda: self._client.create(options))
        return kind(self._client.context, self._calls, metadata, deferred_sync=deferred_sync)
