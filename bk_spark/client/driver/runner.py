"""The driver of one state machine: carries out its commands, reports the results as events, and keeps its deadlines.

The driver decides nothing about the protocol: only the state machine judges what bookies and the metadata store answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc.aio

from bk_spark.client.driver.bookies import BookieClient
from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.connections import (
    CLOSE_GRACE_S,
    ReadNotSentError,
    ReadProgress,
    describe_failure,
)
from bk_spark.client.driver.queued_add import QueuedAdd
from bk_spark.client.driver.request_metrics import ReadMeter, count_choice, count_error, counted_add
from bk_spark.client.protocol import state_machine as sm
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.entries.digest import Digester
from bk_spark.errors import BookKeeperError, InternalError, MetadataConflictError
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    NoNodeError,
    SetValue,
    TransactionFailedError,
    Versioned,
    find,
)
from bk_spark.wire.apache.version_3 import covered_by_proof
from bk_spark.wire.messages import (
    AddReply,
    AddRequest,
    ForceRequest,
    LastAddConfirmedReply,
    LastAddConfirmedRequest,
    PlainReply,
    ReadBatch,
    ReadRequest,
    Status,
    StoreLastAddConfirmedRequest,
)

logger = logging.getLogger(__name__)

_Reply = TypeVar("_Reply")


@dataclass(slots=True)
class _Read:
    """A read under way."""

    bookie_id: str
    task: asyncio.Task[None]
    heard_ms: int | None
    """When the bookie was asked or last sent something; None: it was not asked yet, because the read waits for others."""


class Runner:
    """Runs one state machine. ``on_command`` gets the commands for the application: Confirm, Reject, Release, Deliver, Finish.

    All methods run on the event loop.
    """

    def __init__(
        self,
        context: ClientContext,
        metadata: LedgerMetadata,
        machine: sm.StateMachine,
        on_command: Callable[[sm.Command], None],
    ) -> None:
        self._context = context
        self._metadata = metadata
        self._master_key = metadata.master_key
        self._digester = Digester(metadata.digest_type, metadata.password)
        self._machine = machine
        self._on_command = on_command
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self._now_ms = 0
        self._adds: dict[int, QueuedAdd] = {}
        self._reads: dict[int, _Read] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._stopped = False

    def post(self, event: sm.Event) -> None:
        """Report an event and carry out the commands that follow.

        An exception of the state machine itself ends it with an InternalError, because somebody waits for its result.
        """
        if self._stopped:
            return
        self._now_ms = self._context.now_ms()
        try:
            self._machine.handle(event, self._now_ms)
            commands = self._machine.take_commands()
        except Exception as problem:
            commands = [self._failed(problem)]
        for command in commands:
            self._carry_out(command)
        if not self._stopped:
            try:
                self._keep_deadline()
            except Exception as problem:
                self._carry_out(self._failed(problem))

    def _failed(self, problem: Exception) -> sm.Finish:
        logger.exception("an operation on ledger %d failed", self._metadata.ledger_id)
        return sm.Finish(error=InternalError(self._metadata.ledger_id, repr(problem)))

    def stop(self, unsent_grace_s: float = 0.0) -> None:
        """Stop the state machine, whether it has ended or not. Adds that are still unsent after the grace are dropped."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._background):
            task.cancel()
        unsent, self._adds = list(self._adds.values()), {}
        self._context.loop.call_later(unsent_grace_s, _cancel_all, unsent)

    def _carry_out(self, command: sm.Command) -> None:
        match command:
            case sm.SendAdd():
                self._send_add(command)
            case sm.CancelAdd():
                self._cancel_add(command)
            case sm.SendRead():
                self._reads[command.request_id] = _Read(command.bookie_id, self._start(self._read(command)), self._now_ms)
            case sm.CancelRead():
                self._cancel_read(command)
            case sm.SendReadLastAddConfirmed():
                self._start(self._read_last_add_confirmed(command))
            case sm.SendStoreLastAddConfirmed():
                self._start(self._store_last_add_confirmed(command))
            case sm.SendForce():
                self._start(self._force(command))
            case sm.ChooseReplacements():
                self._start(self._choose_replacements(command))
            case sm.ReportFailure():
                self._context.report_failure(command.bookie_id)
            case sm.MarkUnderReplicated():
                self._start(self._mark(command))
            case sm.WriteMetadata():
                self._start(self._write_metadata(command))
            case sm.ReadMetadata():
                self._start(self._read_metadata(is_synced=command.is_synced))
            case _:
                self._on_command(command)
                if isinstance(command, sm.Finish | sm.Reject) and command.error is not None:
                    count_error(command.error)
                if isinstance(command, sm.Finish):
                    self.stop(CLOSE_GRACE_S if command.error is None else 0.0)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._context.loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """An unexpected exception while a command was carried out is a bug: end, because somebody waits for the result."""
        self._background.discard(task)
        problem = None if task.cancelled() else task.exception()
        if problem is not None and not self._stopped:
            logger.error("an operation on ledger %d failed", self._metadata.ledger_id, exc_info=problem)
            self._carry_out(sm.Finish(error=InternalError(self._metadata.ledger_id, repr(problem))))

    def _keep_deadline(self) -> None:
        """Set the timer. Nearly every event moves the deadline later: then the old timer stays, an early tick is harmless."""
        deadline = self._machine.deadline_ms()
        if deadline is None or (self._timer_ms is not None and self._timer_ms <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0, deadline - self._context.now_ms()) / 1000
        self._timer, self._timer_ms = self._context.loop.call_later(delay_s, self._tick), deadline

    def _tick(self) -> None:
        self._timer, self._timer_ms = None, None
        self.post(sm.Tick())

    # --- adds

    def _send_add(self, command: sm.SendAdd) -> None:
        request = AddRequest(
            command.request_id,
            command.bookie_id,
            self._master_key,
            command.batch,
            recovery=command.recovery,
            deferred_sync=command.deferred_sync,
        )
        on_reply = counted_add(command.batch, self._context.loop.time, self._add_answered)
        self._adds[command.request_id] = self._bookie(command.bookie_id).send_add(request, on_reply)

    def _add_answered(self, reply: AddReply) -> None:
        self._adds.pop(reply.request_id, None)
        self.post(sm.AddAnswered(reply.request_id, reply.status, reply.detail, reply.boot))

    def _cancel_add(self, command: sm.CancelAdd) -> None:
        queued = self._adds.pop(command.request_id, None)
        if queued is not None:
            queued.cancel()

    async def _force(self, command: sm.SendForce) -> None:
        request = ForceRequest(*self._addressed(command.bookie_id))
        answer = await self._asked(self._bookie(command.bookie_id).force(request, self._context.config.add_timeout_s))
        reply = answer if isinstance(answer, PlainReply) else PlainReply(Status.UNKNOWN, answer)
        self.post(sm.ForceAnswered(command.request_id, reply.status, reply.detail, reply.boot))

    # --- reads

    async def _read(self, command: sm.SendRead) -> None:
        end = sm.ReadEnded(command.request_id, Status.UNKNOWN, "the answer broke off")
        meter = ReadMeter(self._context.loop.time)
        ids = self._addressed(command.bookie_id, changes=command.fence)
        request = ReadRequest(
            *ids, command.first, command.last, command.pattern, command.maximum_bytes, command.fence, self._metadata.digest_type
        )
        try:
            async for reply in self._bookie(command.bookie_id).read(request):
                if isinstance(reply, ReadBatch):
                    meter.take(reply.batch)
                    self.post(sm.ReadArrived(command.request_id, reply.batch))
                    self._heard(command.request_id, self._now_ms)
                elif reply is ReadProgress.WAITS:
                    self.post(sm.ReadWaits(command.request_id))
                    self._heard(command.request_id, None)
                elif reply is ReadProgress.SENT:
                    self.post(sm.ReadSent(command.request_id))
                    self._heard(command.request_id, self._now_ms)
                else:
                    end = sm.ReadEnded(command.request_id, reply.status, reply.detail, reply.next_entry_id)
        except asyncio.CancelledError:
            if self._stopped or command.request_id not in self._reads:
                meter.end(None)
                raise
            end = sm.ReadEnded(command.request_id, Status.UNKNOWN, "its connection was closed")
        except (grpc.aio.AioRpcError, BookKeeperError, OSError) as failure:
            if not isinstance(failure, ReadNotSentError):
                self._context.avoid(command.bookie_id)
            end = sm.ReadEnded(command.request_id, Status.UNKNOWN, describe_failure(failure))
        self._reads.pop(command.request_id, None)
        meter.end(end.status)
        self.post(end)

    def _heard(self, request_id: int, heard_ms: int | None) -> None:
        if request_id in self._reads:
            self._reads[request_id].heard_ms = heard_ms

    def _cancel_read(self, command: sm.CancelRead) -> None:
        """If the bookie was silent for so long that another one is asked beside it, ask it last for a while.

        That is no failure, it may only be slow. But if it stands still, every new read would wait for it first. A bookie that
        merely lost a race, or was sending when its reader stopped, keeps its place.
        """
        read = self._reads.pop(command.request_id, None)
        if read is None:
            return
        read.task.cancel()
        config = self._context.config
        enough_ms = 1000 * min(config.speculative_read_s, config.read_timeout_s)
        if read.heard_ms is not None and self._now_ms - read.heard_ms >= enough_ms:
            self._context.avoid(read.bookie_id)

    # --- the last add confirmed

    async def _read_last_add_confirmed(self, command: sm.SendReadLastAddConfirmed) -> None:
        ids = self._addressed(command.bookie_id, changes=command.fence)
        request = LastAddConfirmedRequest(*ids, command.fence, command.beyond, command.wait_ms, self._digester)
        timeout_s = command.wait_ms / 1000 + self._context.config.read_timeout_s
        answer = await self._asked(self._bookie(command.bookie_id).last_add_confirmed(request, timeout_s))
        reply = answer if isinstance(answer, LastAddConfirmedReply) else LastAddConfirmedReply(Status.UNKNOWN, NO_ENTRY, answer)
        confirmed, fenced = reply.last_add_confirmed, reply.is_fenced
        self.post(sm.LastAddConfirmedAnswered(command.request_id, reply.status, confirmed, reply.detail, fenced))

    async def _store_last_add_confirmed(self, command: sm.SendStoreLastAddConfirmed) -> None:
        bookie_id, confirmed = command.bookie_id, command.last_add_confirmed
        proof = self._digester.of_bytes(covered_by_proof(self._metadata.ledger_id, confirmed))
        request = StoreLastAddConfirmedRequest(*self._addressed(bookie_id), confirmed, proof)
        timeout_s = self._context.config.add_timeout_s
        answer = await self._asked(self._bookie(bookie_id).store_last_add_confirmed(request, timeout_s))
        reply = answer if isinstance(answer, PlainReply) else PlainReply(Status.UNKNOWN, answer)
        told = (bookie_id, self._metadata.ledger_id, confirmed, reply.describe())
        logger.debug("bookie %s was told that ledger %d is confirmed up to %d: %s", *told)
        self.post(sm.StoreLastAddConfirmedAnswered(command.request_id, reply.status, reply.detail))

    # --- shared by all requests to bookies

    def _bookie(self, bookie_id: str) -> BookieClient:
        return self._context.bookies.bookie(bookie_id)

    def _addressed(self, bookie_id: str, *, changes: bool = True) -> tuple[str, int, bytes]:
        """The first fields of every request but an add. ``changes``: it is no mere read, which shows the key for reads."""
        return bookie_id, self._metadata.ledger_id, self._master_key if changes else self._metadata.read_key

    async def _asked(self, call: Awaitable[_Reply]) -> _Reply | str:
        """A bookie's reply, or in a few words why there is none."""
        try:
            return await call
        except asyncio.CancelledError:
            if self._stopped:
                raise
            return "its connection was closed"
        except (grpc.aio.AioRpcError, BookKeeperError, OSError) as failure:
            return describe_failure(failure)

    # --- the metadata store

    async def _choose_replacements(self, command: sm.ChooseReplacements) -> None:
        chosen = await self._context.choose_replacements(command, self._metadata.write_quorum)
        count_choice(command, chosen)
        self.post(chosen)

    async def _mark(self, command: sm.MarkUnderReplicated) -> None:
        ledger_id, bookies = self._metadata.ledger_id, command.bookies
        try:
            await self._context.blocking(lambda: self._context.marks.mark(ledger_id, bookies))
        except BookKeeperError as failure:
            what = "ledger %d lacks copies on %s and could not be marked as under-replicated; it is tried again a few times: %s"
            logger.warning(what, ledger_id, ", ".join(bookies), failure)
            self.post(sm.MarkAnswered(failure))
        else:
            logger.info("ledger %d is marked as under-replicated: %s lack copies", ledger_id, ", ".join(bookies))
            self.post(sm.MarkAnswered())

    async def _write_metadata(self, command: sm.WriteMetadata) -> None:
        path = self._context.znodes.ledger(self._metadata.ledger_id)
        value = command.metadata.encode()
        try:
            version = await self._context.blocking(lambda: self._compare_and_set(path, value, command))
        except BadVersionError:
            await self._read_metadata()
        except NoNodeError:
            self.post(sm.MetadataGone())
        except BookKeeperError as failure:
            self.post(sm.MetadataUnknown(failure))
        else:
            self.post(sm.MetadataWritten(version))

    def _compare_and_set(self, path: str, value: bytes, command: sm.WriteMetadata) -> int:
        """Returns the new version. Raises the errors of the store's ``set``; MetadataConflictError if the guard is gone.

        After the store went back to an older copy, another creator's ledger may have the id, and even the version.
        """
        store, version = self._context.store, command.expected_version
        found = find(store, path)
        if found is not None and not self._metadata.is_same_ledger(self._decoded(found)):
            raise NoNodeError(path)
        if not command.guard:
            return store.set(path, value, version)
        try:
            store.transaction([Check(command.guard, ANY_VERSION), SetValue(path, value, version)])
        except TransactionFailedError as failure:
            if failure.index == 0:
                raise MetadataConflictError(f"the session that changes {path}", f"{command.guard} is gone with it") from None
            raise failure.reason from None
        return version + 1

    async def _read_metadata(self, *, is_synced: bool = False) -> None:
        path, store = self._context.znodes.ledger(self._metadata.ledger_id), self._context.store

        def get() -> Versioned:
            if not is_synced:
                with suppress(NoNodeError):  # a server that lags behind proves no absence
                    return store.get(path)
            store.sync(path)
            return store.get(path)

        try:
            found = await self._context.blocking(get)
            metadata = self._decoded(found)
            is_same = self._metadata.is_same_ledger(metadata)
            self.post(sm.MetadataRead(metadata, found.version) if is_same else sm.MetadataGone())
        except NoNodeError:
            self.post(sm.MetadataGone())
        except BookKeeperError as failure:
            self.post(sm.MetadataUnknown(failure))

    def _decoded(self, found: Versioned) -> LedgerMetadata:
        return LedgerMetadata.decode(self._metadata.ledger_id, found.value)


def _cancel_all(adds: list[QueuedAdd]) -> None:
    for queued in adds:
        queued.cancel()
