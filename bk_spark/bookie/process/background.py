"""What a bookie does beside serving (repair, scrub, garbage collection), and what an operator may ask of a running bookie.

Each background task has a thread of its own. It logs its errors and tries again; they never end the bookie.

Ref: run_bookie.py, phase 4; proto/bookie.proto, Administer; docs/rules.md, protocol rules 44 and 51.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bk_spark.bookie.admission import ORDERED
from bk_spark.bookie.background_task import BackgroundTask
from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.pace import SYSTEM_CLOCKS
from bk_spark.bookie.process.boot_epoch_keeper import BootEpochKeeper
from bk_spark.bookie.process.disk_watch import DiskWatch
from bk_spark.bookie.repair.ledger_repair import LedgerRepair, Peers
from bk_spark.bookie.repair.limbo_repair import LimboRepair
from bk_spark.bookie.repair.scrub import Scrubber
from bk_spark.bookie.server.server import BookieServer
from bk_spark.bookie.space.foreign_ledgers import ForeignLedgers
from bk_spark.bookie.space.garbage_collection import ClusterMember, LocalLedgers
from bk_spark.bookie.space.gc_run import GarbageCollector
from bk_spark.bookie.space.issued_ids import IssuedIds
from bk_spark.config import BookieConfig
from bk_spark.errors import BookKeeperError
from bk_spark.wire.messages import HIGHEST_LEDGER_ID, AdministerReply, AdminOperation, DeleteLedgerRequest, Status

_READ_ONLY = {AdminOperation.READ_ONLY_ON: True, AdminOperation.READ_ONLY_OFF: False}

logger = logging.getLogger(__name__)


class Administration:
    """Carries out an operator's requests. Any thread may call it; it returns at once, and what it starts goes on by itself."""

    def __init__(self, bookie: Bookie, bookie_id: str, watch: DiskWatch, order_read_only: Callable[[bool], None]) -> None:
        """``order_read_only`` orders it of this bookie, and of those that this process opens later."""
        self._order_read_only = order_read_only
        self._bookie = bookie
        self._bookie_id = bookie_id
        self._watch = watch
        self.background: Background | None = None
        """None before the background has started: until then only the status can be asked for."""

    def administer(self, bookie_id: str, operation: AdminOperation, ledger_ids: Sequence[int] = ()) -> AdministerReply:
        """UNKNOWN while the bookie starts or serves reads alone, WRONG_BOOKIE if another bookie is meant."""
        if bookie_id != self._bookie_id:
            return AdministerReply(Status.WRONG_BOOKIE, f"this is bookie {self._bookie_id}")
        if operation is AdminOperation.BOOKIE_STATUS:
            return self._bookie_status()
        if operation in _READ_ONLY:
            return self._read_only(_READ_ONLY[operation])
        if self.background is None:
            failure = self._bookie.failure
            detail = f"this bookie serves reads alone: {failure}" if failure else "this bookie is starting: ask again"
            return AdministerReply(Status.UNKNOWN, detail)
        if operation in (AdminOperation.LIMBO_STATUS, AdminOperation.LIMBO_END):
            return self._limbo(self.background.repair, ledger_ids if operation is AdminOperation.LIMBO_END else ())
        return _carry_out(self.background, operation)

    def _read_only(self, is_read_only: bool) -> AdministerReply:
        self._order_read_only(is_read_only)
        logger.warning("an operator switched read-only %s on this bookie", "on" if is_read_only else "off")
        return AdministerReply(Status.OK, self._why(), {"read_only": int(self._bookie.is_read_only)})

    def _why(self) -> str:
        """Why the bookie takes no adds, or not those of new ledgers; "" if it takes them."""
        bookie = self._bookie
        ordered = ORDERED if bookie.is_ordered_read_only else ""
        return str(bookie.failure or bookie.lapse or bookie.ids_above or ordered or self._watch.state.problem)

    def _limbo(self, repair: LimboRepair | None, to_end: Sequence[int]) -> AdministerReply:
        """End the limbo of some ledgers, and tell which others it waits for."""
        if repair is None:
            return AdministerReply(Status.UNKNOWN, "this process has no client to repair the bookie with: limbo does not end")
        try:
            for ledger_id in to_end:
                repair.give_up(ledger_id)
        except BookKeeperError as problem:
            return AdministerReply(Status.BAD_REQUEST, str(problem), ledgers=repair.waits_for())
        status = repair.status()
        figures = {"limbo": int(self._bookie.limbo is not None), **status.figures()}
        return AdministerReply(Status.OK, status.last_error, figures, repair.waits_for())

    def _bookie_status(self) -> AdministerReply:
        bookie, background = self._bookie, self.background
        flags = {"read_only": bookie.is_read_only, "failed": bookie.failure is not None, "limbo": bookie.limbo is not None}
        flags["ids_given_out_again"] = bookie.ids_above != ""
        flags["lapsed"] = bool(bookie.lapse)
        flags["read_only_ordered"] = bookie.is_ordered_read_only
        figures = {name: int(is_so) for name, is_so in flags.items()}
        figures[HIGHEST_LEDGER_ID] = bookie.storage.highest_ledger_id()
        for name, task in background.reported() if background is not None else ():
            if task is not None:
                figures |= {f"{name}_{figure}": value for figure, value in task.status().figures().items()}
        return AdministerReply(Status.OK, self._why(), figures)


def _carry_out(background: Background, operation: AdminOperation) -> AdministerReply:
    task = background.scrub if operation is AdminOperation.SCRUB else background.collector
    match operation:
        case AdminOperation.SCRUB | AdminOperation.GC_RUN:
            task.force()
        case AdminOperation.GC_SUSPEND:
            background.collector.suspend()
        case AdminOperation.GC_RESUME:
            background.collector.resume()
    status = task.status()
    return AdministerReply(Status.OK, status.last_error, status.figures())


@dataclass(frozen=True, slots=True)
class RunningBookie:
    """A bookie that serves and is registered: what its background works with."""

    bookie_id: str
    bookie: Bookie
    config: BookieConfig
    cluster: ClusterMember
    watch: DiskWatch
    administration: Administration
    server: BookieServer
    epoch_keeper: BootEpochKeeper | None
    """None if the bookie has no boot, and serves reads alone."""
    peers: Peers | None
    """None if this process has no client: then nothing is repaired from other bookies."""


@dataclass(frozen=True, slots=True)
class Background:
    """The background tasks of one bookie. Made by ``of``."""

    collector: GarbageCollector
    scrub: Scrubber
    repair: LimboRepair | None
    """Ends the limbo after a possible loss of data; None without a client."""
    issued_ids: IssuedIds
    foreign: ForeignLedgers | None
    """Lets go of what is stored under foreign keys; None without a client."""

    @classmethod
    def of(cls, running: RunningBookie) -> Background:
        bookie, server, repair = running.bookie, running.server, None
        if running.peers is not None:
            repair = LedgerRepair(running.bookie_id, bookie.storage, running.peers, server.requests.sync_thread.call)
        elif bookie.limbo is not None:
            logger.warning(
                "bookie %s is in limbo and stays so: this process has no client to repair it with", running.bookie_id
            )

        def delete_ledger(ledger_id: int, deleted_ms: int, decided_at: int | None = None, /) -> bool:
            return server.requests.sync_thread.call(DeleteLedgerRequest(ledger_id, deleted_ms, decided_at)).status is Status.OK

        scrubber = Scrubber(bookie.storage, repair, running.config)
        bookie.report_damage = scrubber.report
        local = LocalLedgers(bookie.storage, delete_ledger, running.watch.spare_bytes, scrubber.report)
        collector = GarbageCollector(local, running.cluster, running.config)
        issued_ids = IssuedIds(bookie.storage, running.cluster, bookie.refuse_new_ledgers, server.requests.new_ledgers.note)
        limbo_repair = LimboRepair(bookie, repair) if repair is not None else None

        def delete_foreign(ledger_id: int, deleted_ms: int, own_key_hash: bytes) -> None:
            server.requests.sync_thread.call(DeleteLedgerRequest(ledger_id, deleted_ms, own_key_hash=own_key_hash))

        foreign = None
        if running.peers is not None:
            refused, check_key = bookie.admission.take_refused, running.peers.check_key
            clock_ms = SYSTEM_CLOCKS.wall_ms
            foreign = ForeignLedgers(bookie.storage, running.cluster, refused, delete_foreign, check_key, clock_ms)
        return cls(collector, scrubber, limbo_repair, issued_ids, foreign)

    def start(self) -> None:
        for task in self._tasks():
            task.start()

    def stop(self) -> None:
        """Stop the tasks, and wait for them. The server must have stopped, and the bookie must still be open."""
        for task in reversed(self._tasks()):
            task.stop()

    def _tasks(self) -> list[BackgroundTask[Any]]:
        tasks = (self.issued_ids, self.repair, self.scrub, self.collector, self.foreign)
        return [task for task in tasks if task is not None]

    def reported(self) -> list[tuple[str, BackgroundTask[Any] | None]]:
        """What the status of the bookie shows, by the prefix of its figures."""
        return [("scrub", self.scrub), ("repair", self.repair), ("foreign", self.foreign)]
