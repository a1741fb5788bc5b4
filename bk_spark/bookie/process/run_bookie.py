"""A bookie's life from start to stop, in phases:

1. **Identity**: lock all directories, check that they are this bookie's and that no other process serves it, take the next boot
   number (boot.py).
2. **Open**: replay. After a possible loss of data, every ledger issued so far is in limbo, durably, at the end of this phase.
3. **Serve**, then **register**: only now do clients find this bookie. From now on its boot epoch moves (boot_epoch_keeper.py).
4. **Background**: repair, garbage collection and scrub run in threads beside the server, which they use.
5. **Stop**, in reverse: leave the list of bookies, stop serving, stop the background, flush, mark the stop as clean, unlock.

After a full disk the process goes through the phases again without ending (registration.py). If there is no space to open the
storage, at a start or then, it takes no boot number or leaves it as a crash would, and serves reads alone until there is.

A signal to stop is honoured in every phase (stop_signals.py). Before the bookie serves, it ends the start where a crash could.

Ref: BP-46, "The Full Boot-Up Sequence"; docs/rules.md, protocol rules 51 and 52, storage rules 9 and 18.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import DirectoryLock, Disk
from bk_spark.bookie.identity.boot import Boot, MetadataPlace, begin_boot, check_startable, possible_losses
from bk_spark.bookie.identity.cookie import locked
from bk_spark.bookie.identity.identity import Identity, examine
from bk_spark.bookie.index.ledger_index import OpenIndex
from bk_spark.bookie.index.sqlite_index import open_index as open_sqlite_index
from bk_spark.bookie.process.background import Administration, Background, RunningBookie
from bk_spark.bookie.process.boot_epoch_keeper import BootEpochKeeper
from bk_spark.bookie.process.disk_watch import DiskWatch, is_out_of_space
from bk_spark.bookie.process.monitoring import MeasuredDisk, Monitoring
from bk_spark.bookie.process.open_files import warn_of_open_files
from bk_spark.bookie.process.registration import Availability, Registration, await_others, takes_adds
from bk_spark.bookie.process.stop_signals import StopAskedError, StopSignals
from bk_spark.bookie.progress import Progress
from bk_spark.bookie.repair.ledger_repair import Peers
from bk_spark.bookie.server.server import BookieServer, End, check_address
from bk_spark.bookie.server.sync_thread import CheckpointThread
from bk_spark.bookie.space.garbage_collection import ClusterMember
from bk_spark.bookie.storage.open_storage import OpenOptions
from bk_spark.bookie.storage.stored_ledgers import DURABLE_WAIT_S
from bk_spark.config import BookieConfig
from bk_spark.errors import MetadataUnavailableError, StorageError
from bk_spark.host_port import HostPort
from bk_spark.metadata.ledger_ids import highest_issued_id, ledger_ids
from bk_spark.metadata.registration import BookieAddress
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import ZooKeeperStore
from bk_spark.process.memory import keep_freed
from bk_spark.telemetry.logging_setup import name_bookie
from bk_spark.tls.files import check_files

REOPEN_PAUSE_S = 5.0
"""Between two tries to open the storage anew: the metadata store may be away for seconds or for hours."""

LEAVE_S = 2.0
"""For a bookie that stops to leave the list of bookies. It takes milliseconds, and longer only where ZooKeeper does not answer.
Waits for that would add up to several session timeouts: an orchestrator would kill the bookie before it has written everything
out."""

MEASURED_DISK = MeasuredDisk()

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BookiePlace:
    """Where a bookie keeps its files and where it listens."""

    data_dir: Path
    host: str
    port: int
    """0 takes a free one."""


def run_bookie(
    place: BookiePlace,
    store: ZooKeeperStore,
    znodes: Znodes,
    config: BookieConfig,
    *,
    disk: Disk = MEASURED_DISK,
    open_index: OpenIndex = open_sqlite_index,
    peers: Peers | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP. On the main thread.

    Raises ConfigError, CorruptionError and FormatVersionError if it must not start, MetadataConflictError if another process
    runs this bookie, MetadataUnavailableError, and StorageError if a flush failed: then the stop is unclean.
    """
    check_files(config)
    if config.tls_certificate and not config.tls_ca:
        logger.warning("without tls_ca every client is taken, and this bookie cannot repair itself from others that speak TLS")
    if config.tls_ca and not config.members:
        logger.info(
            "without members whoever shows a good certificate may add to, fence and read ledgers, and administer this bookie"
        )
    if config.tls_certificate and config.apache_clear_clients:
        logger.warning("with apache_clear_clients whoever reaches apache_port is served without TLS and a certificate")
    if config.clear_port >= 0:
        logger.warning("with clear_port whoever reaches that port is served without TLS and a certificate")
    if config.apache_users and (not config.tls_certificate or config.apache_clear_clients):
        logger.warning("apache_users without TLS for all: passwords are not sent, but whoever listens reads all else")
    keep_freed()
    with StopSignals() as stop:
        process = _Process(place, store, znodes, config, disk, open_index, peers, stop)
        with locked(process.directories.roots, disk) as locks:
            check_address(place.host, place.port)
            warn_of_open_files(process.directories, disk)
            with process.monitoring:
                _run_to_the_end(process, locks[place.data_dir])
        logger.info("the bookie in %s has stopped", place.data_dir)


def _run_to_the_end(process: _Process, lock: DirectoryLock) -> None:
    try:
        end = process.run(lock)
        while end is End.REOPEN:
            process.stop.check()
            logger.info("the bookie in %s opens its storage anew", process.place.data_dir)
            end = process.run_again(lock)
    except StopAskedError:
        logger.info("the bookie in %s was told to stop while it opened its storage", process.place.data_dir)


@dataclass(frozen=True, slots=True)
class _OpenedBookie:
    bookie_id: str
    bookie: Bookie
    boot: Boot | None
    """None if there was no space to boot: then the bookie serves reads alone."""
    epoch_keeper: BootEpochKeeper | None
    """None without a boot: such a bookie acknowledges nothing."""


@dataclass
class _Process:
    """Runs one bookie, once or several times. The caller has locked all directories."""

    place: BookiePlace
    store: ZooKeeperStore
    znodes: Znodes
    config: BookieConfig
    disk: Disk
    open_index: OpenIndex
    peers: Peers | None
    stop: StopSignals

    def __post_init__(self) -> None:
        self.directories = Directories.of(self.place.data_dir, self.config)
        self.is_ordered_read_only = False
        """Whether an operator ordered it. It outlasts that the storage is opened anew, and ends with the process."""
        self.monitoring = Monitoring(self.place.host, self.config, lambda: self.store.session)

    def run(self, lock: DirectoryLock) -> End:
        """One run through all phases. ``lock`` is the data directory's. Raises StopAskedError at a stop before phase 3."""
        identity = self._identify()
        end: End | None = None
        progress = Progress(check=self.stop.check)
        with self.monitoring.of(identity.bookie_id, progress), CheckpointThread() as checkpoints:
            opened = self._open(identity, lock, checkpoints, progress)
            try:
                end = asyncio.run(self._serve(opened, checkpoints))
            finally:
                _close(opened, end)
        return end

    def run_again(self, lock: DirectoryLock) -> End:
        """Like ``run``, after a run that gave up its storage; waits for a metadata store that does not answer."""
        while True:
            try:
                return self.run(lock)
            except MetadataUnavailableError as problem:
                logger.warning("the storage cannot be opened anew, it is tried again in %g s: %s", REOPEN_PAUSE_S, problem)
                self.stop.pause(REOPEN_PAUSE_S)

    def _identify(self) -> Identity:
        """Which bookie this is. Writes nothing."""
        identity = examine(self.directories, self.store, self.znodes, self.disk)
        name_bookie(identity.bookie_id)
        check_startable(identity, self.config)
        address = self._address(identity.bookie_id)
        await_others(self.store, self.znodes, address, self._patience_s, self.stop.pause)
        return identity

    def _open(
        self, identity: Identity, lock: DirectoryLock, checkpoints: CheckpointThread, progress: Progress
    ) -> _OpenedBookie:
        """Boot and open the storage, or, if there is no space for that, open it for reads alone."""
        try:
            return self._boot(identity, lock, checkpoints, progress)
        except StorageError as problem:
            if not is_out_of_space(problem) or identity.mismatches:
                raise
            remedy = "it serves reads alone until there is space: delete files of others, or add disk"
            logger.error("bookie %s cannot open its storage, because: %s; %s", identity.bookie_id, problem, remedy)
            losses = "; ".join(possible_losses(identity, self.disk))
            options = OpenOptions(self.open_index, DURABLE_WAIT_S, checkpoints, losses, self._highest_issued, progress)
            bookie = Bookie.open_frozen(self.directories, identity.bookie_id, self.config, self.disk, options, problem)
            return _OpenedBookie(identity.bookie_id, bookie, None, None)

    def _boot(
        self, identity: Identity, lock: DirectoryLock, checkpoints: CheckpointThread, progress: Progress
    ) -> _OpenedBookie:
        self.stop.check()
        began_s, metadata = time.monotonic(), MetadataPlace(self.store, self.znodes)
        boot = begin_boot(identity, metadata, self.config, self.disk)
        logger.info("bookie %s, boot %d", boot.bookie_id, boot.number)
        if boot.possible_loss:
            logger.warning("bookie %s may have lost data and starts in limbo: %s", boot.bookie_id, boot.possible_loss)
        try:
            bookie = Bookie.open(
                self.directories,
                boot.bookie_id,
                self.config,
                self.disk,
                highest_issued=self._highest_issued,
                possible_loss=boot.possible_loss,
                open_index=self.open_index,
                lock=lock,
                background=checkpoints,
                progress=progress,
            )
        except StopAskedError:
            boot.give_up()
            raise
        try:
            boot.opened(skips_journal=not self.config.journal_write_data)
        except BaseException:
            bookie.close()
            raise
        epoch_keeper = BootEpochKeeper(boot, metadata, self.config, began_s)
        return _OpenedBookie(boot.bookie_id, bookie, boot, epoch_keeper)

    def _highest_issued(self) -> int:
        issued = highest_issued_id(self.store, self.znodes)
        return max([issued, *ledger_ids(self.store, self.znodes, issued)])  # creators may choose ids above the counter

    async def _serve(self, opened: _OpenedBookie, checkpoints: CheckpointThread) -> End:
        """Phases 3 to 5, up to the server's end."""
        loop = asyncio.get_running_loop()
        if opened.epoch_keeper is not None:
            await loop.run_in_executor(
                None, opened.epoch_keeper.turn
            )  # the replay may have taken longer than an epoch may last
        running = self._running(opened)
        checkpoints.on_failure(running.server.fail)
        with self.stop.on_stop(lambda: loop.call_soon_threadsafe(running.server.request_stop)):
            return await self._serve_running(opened, running)

    async def _serve_running(self, opened: _OpenedBookie, running: RunningBookie) -> End:
        loop = asyncio.get_running_loop()
        server, background = running.server, Background.of(running)
        await loop.run_in_executor(None, background.issued_ids.look)
        self.place = replace(self.place, port=await server.start())  # a later run keeps the ports
        if server.apache_port is not None:
            self.config = replace(self.config, apache_port=server.apache_port.port)
        if server.clear_port is not None:
            self.config = replace(self.config, clear_port=server.clear_port)
        registration = Registration(
            self.store,
            self.znodes,
            replace(self._address(running.bookie_id), apache=server.apache_port, clear_port=server.clear_port),
            patience_s=self._patience_s,
            is_read_only=not takes_adds(opened.bookie),
        )
        self.monitoring.serves(running, registration.problem)
        marking = loop.create_task(_mark_failure(opened, self.config.disk_check_s))
        working = loop.create_task(self._work(running, registration, background, is_frozen=opened.boot is None))
        if opened.epoch_keeper is not None:
            opened.epoch_keeper.on_failure(server.fail)
            opened.epoch_keeper.start()
        try:
            await asyncio.wait((working, server.ended), return_when=asyncio.FIRST_COMPLETED)
            return server.ended.result() if server.ended.done() else working.result()
        finally:
            logger.info("bookie %s stops: it ends its requests, then writes out what it has in memory", opened.bookie_id)
            self.monitoring.stops()
            working.cancel()
            await asyncio.wait((working,))
            await self._leave(registration, opened.epoch_keeper)
            await server.stop()
            await loop.run_in_executor(None, background.stop)
            marking.cancel()

    async def _leave(self, registration: Registration, epoch_keeper: BootEpochKeeper | None) -> None:
        """Leave the list of bookies, and move the boot epoch no more."""
        loop = asyncio.get_running_loop()
        registration.stop_waiting()
        steps = [registration.end, *([epoch_keeper.stop] if epoch_keeper is not None else [])]
        leaving = [loop.run_in_executor(None, step) for step in steps]
        _, waiting = await asyncio.wait(leaving, timeout=LEAVE_S)
        if waiting and self.stop.is_asked:
            logger.warning("ZooKeeper has not answered for %g s: the registration goes when its session has expired", LEAVE_S)
            await loop.run_in_executor(None, self.store.close)  # which ends every wait for it
        await asyncio.gather(*leaving)

    async def _work(
        self, running: RunningBookie, registration: Registration, background: Background, *, is_frozen: bool
    ) -> End:
        """Register, start the background, and watch the disks until the storage is to be opened anew."""
        availability = Availability(running.bookie, running.watch, registration, self._may_boot)
        await asyncio.get_running_loop().run_in_executor(None, registration.keep)
        logger.info("bookie %s serves on %s", running.bookie_id, HostPort(self.place.host, self.place.port))
        if is_frozen:  # nothing may change; and disks that seem to have space, and have not, cost a replay at each try
            await asyncio.sleep(REOPEN_PAUSE_S)
        else:
            background.start()
            running.administration.background = background
        await availability.keep(self.config.disk_check_s)
        return End.REOPEN

    def _running(self, opened: _OpenedBookie) -> RunningBookie:
        bookie, epoch_keeper = opened.bookie, opened.epoch_keeper
        watch = DiskWatch(self.directories, self.config, self.disk)

        def look() -> None:
            watch.look(bookie)
            if epoch_keeper is not None:
                epoch_keeper.look()

        if epoch_keeper is not None:
            bookie.ask_lapse(epoch_keeper.lapse)
        look()
        bookie.order_read_only(self.is_ordered_read_only)

        def order_read_only(is_read_only: bool) -> None:
            self.is_ordered_read_only = is_read_only
            bookie.order_read_only(is_read_only)

        administration = Administration(bookie, opened.bookie_id, watch, order_read_only)
        cluster = ClusterMember.of(self.store, self.znodes, opened.bookie_id)
        server = BookieServer(
            bookie,
            self.config,
            host=self.place.host,
            port=self.place.port,
            looks=look,
            administer=administration.administer,
            ledger_ids=cluster,
        )
        return RunningBookie(
            opened.bookie_id, bookie, self.config, cluster, watch, administration, server, epoch_keeper, self.peers
        )

    def _address(self, bookie_id: str) -> BookieAddress:
        return BookieAddress(bookie_id, self.place.host, self.place.port, self.config.rack, self.monitoring.address)

    @property
    def _patience_s(self) -> float:
        """How long to wait for the session of an earlier process of this bookie to end."""
        return 2 * self.config.session_timeout_s

    def _may_boot(self) -> bool:
        try:
            self.store.sync(self.znodes.root)
        except MetadataUnavailableError as problem:
            logger.info("the storage is opened anew once the metadata store answers: %s", problem)
            return False
        return True


def _close(opened: _OpenedBookie, end: End | None) -> None:
    """Flush. A run ends cleanly only if it was told to end, flushed everything, and never had a failure."""
    bookie, boot = opened.bookie, opened.boot
    try:
        bookie.close()
    except StorageError as problem:
        _note(boot, problem)
        raise
    if bookie.failure is not None:
        _note(boot, bookie.failure)  # it may have come after _mark_failure looked last
    elif end is not None and boot is not None:
        boot.end()


async def _mark_failure(opened: _OpenedBookie, interval_s: float) -> None:
    """Note a failed write or sync for the next boot as soon as it happens, because this process may be killed."""
    while (failure := opened.bookie.failure) is None:
        await asyncio.sleep(interval_s)
    await asyncio.get_running_loop().run_in_executor(None, _note, opened.boot, failure)


def _note(boot: Boot | None, failure: BaseException) -> None:
    """Note a failure for the next boot, except a full disk, which leaves what was synced as it was."""
    if boot is not None and not is_out_of_space(failure):
        boot.note_failed_sync()
