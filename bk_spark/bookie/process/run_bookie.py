"""A bookie's life from start to stop, in phases:

1. **Identity**: lock all directories, see that they are this bookie's and that nobody else serves it, take the next boot number
   (boot.py).
2. **Open**: replay. After a possible loss of data every ledger issued so far is in limbo, durably, when this is over.
3. **Serve**, then **register**: only now do clients find this bookie.
4. **Background**: repair, garbage collection, scrub: threads beside the server, which need it.
5. **Stop**, backwards: leave the list of bookies, stop serving, stop the background, flush, mark the stop as clean, unlock.

A bookie whose disks were full goes through all of them again without ending (availability.py).

``time`` is here, against the import table, for the pause before a storage that could not be opened anew is tried again.

Ref: BP-46, "The Full Boot-Up Sequence"; docs/rules.md, protocol rules 51 and 52, storage rule 9.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import DirectoryLock, Disk
from bk_spark.bookie.identity.boot import Boot, MetadataPlace, begin_boot, check_startable
from bk_spark.bookie.identity.cookie import locked
from bk_spark.bookie.identity.identity import examine
from bk_spark.bookie.index.ledger_index import OpenIndex
from bk_spark.bookie.index.sqlite_index import open_index as open_sqlite_index
from bk_spark.bookie.process.availability import Availability, takes_adds
from bk_spark.bookie.process.background import Administration, Background, RunningBookie
from bk_spark.bookie.process.disk_watch import DiskWatch, is_out_of_space
from bk_spark.bookie.process.measured_disk import MeasuredDisk
from bk_spark.bookie.process.monitoring import Monitoring, Served
from bk_spark.bookie.process.registration import Registration, await_others
from bk_spark.bookie.repair.ledger_repair import Peers
from bk_spark.bookie.server.server import BookieServer, End, check_address
from bk_spark.bookie.server.sync_thread import CheckpointThread
from bk_spark.bookie.space.garbage_collection import ClusterMember
from bk_spark.config import BookieConfig
from bk_spark.errors import MetadataUnavailableError, StorageError
from bk_spark.metadata.ledger_ids import highest_issued_id
from bk_spark.metadata.registration import BookieAddress
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import ZooKeeperStore
from bk_spark.process_memory import keep_freed
from bk_spark.telemetry.logging_setup import name_bookie
from bk_spark.tls.files import check_files

REOPEN_PAUSE_S = 5.0
"""Before the storage is tried to be opened anew once more: the metadata store may be away for seconds or for hours."""

MEASURED_DISK = MeasuredDisk()

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BookiePlace:
    """Where a bookie keeps its files and where it listens."""

    data_dir: Path
    host: str
    port: int
    """0 for a free one."""


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
    """Serve until SIGTERM or SIGINT.

    Raises ConfigError, CorruptionError and FormatVersionError where it must not start, MetadataConflictError if another process
    runs the same bookie, MetadataUnavailableError, StorageError if what was stored could not be flushed: the stop is unclean
    then.
    """
    check_files(config)
    if config.tls_certificate and not config.tls_ca:
        logger.warning("without tls_ca every client is taken, and this bookie cannot repair itself from others that speak TLS")
    keep_freed()
    process = _Process(place, store, znodes, config, disk, open_index, peers)
    with locked(process.directories.roots, disk) as locks:
        check_address(place.host, place.port)
        lock = locks[place.data_dir]
        with process.monitoring:
            end = process.run(lock)
            while end is End.REOPEN:
                logger.info("the bookie in %s opens its storage anew", place.data_dir)
                end = process.run_again(lock)


class _Process:
    """Runs of one bookie by one process, which has all of its directories locked."""

    def __init__(
        self,
        place: BookiePlace,
        store: ZooKeeperStore,
        znodes: Znodes,
        config: BookieConfig,
        disk: Disk,
        open_index: OpenIndex,
        peers: Peers | None,
    ) -> None:
        self.directories = Directories.of(place.data_dir, config)
        self._place = place
        self._store = store
        self._znodes = znodes
        self._config = config
        self._disk = disk
        self._open_index = open_index
        self._peers = peers
        self.monitoring = Monitoring(place.host, config)

    def run(self, lock: DirectoryLock) -> End:
        """One run, from the identity to the mark that it ended cleanly. ``lock`` is the data directory's."""
        boot = self._identify()
        end: End | None = None
        with self.monitoring.of(boot.bookie_id), CheckpointThread() as checkpoints:
            bookie = self._open(boot, checkpoints, lock)
            try:
                end = asyncio.run(self._serve(bookie, boot, checkpoints))
            finally:
                self._close(bookie, boot, end)
        return end

    def run_again(self, lock: DirectoryLock) -> End:
        """As ``run``, after a run that gave its storage up; waits for a metadata store that does not answer."""
        while True:
            try:
                return self.run(lock)
            except MetadataUnavailableError as problem:
                logger.warning("the storage cannot be opened anew, it is tried again in %g s: %s", REOPEN_PAUSE_S, problem)
                time.sleep(REOPEN_PAUSE_S)

    def _identify(self) -> Boot:
        identity = examine(self.directories, self._store, self._znodes, self._disk)
        check_startable(identity, self._config)
        await_others(self._store, self._znodes, self._address(identity.bookie_id), self._patience_s)
        boot = begin_boot(identity, MetadataPlace(self._store, self._znodes), self._config, self._disk)
        name_bookie(boot.bookie_id)
        logger.info("bookie %s, boot %d", boot.bookie_id, boot.number)
        if boot.possible_loss:
            logger.warning("bookie %s may have lost data and starts in limbo: %s", boot.bookie_id, boot.possible_loss)
        return boot

    def _open(self, boot: Boot, checkpoints: CheckpointThread, lock: DirectoryLock) -> Bookie:
        bookie = Bookie.open(
            self.directories,
            boot.bookie_id,
            self._config,
            self._disk,
            highest_issued=lambda: highest_issued_id(self._store, self._znodes),
            possible_loss=boot.possible_loss,
            open_index=self._open_index,
            lock=lock,
            background=checkpoints,
        )
        try:
            boot.opened(skips_journal=not self._config.journal_write_data)
        except BaseException:
            bookie.close()
            raise
        return bookie

    def _close(self, bookie: Bookie, boot: Boot, end: End | None) -> None:
        """Flush. Only a run that ended as it was told to, flushed everything and never failed to ends cleanly."""
        try:
            bookie.close()
        except StorageError as problem:
            _note(boot, problem)
            raise
        if bookie.failure is not None:
            _note(boot, bookie.failure)  # it may have come after the last look
        elif end is not None:
            boot.end()

    async def _serve(self, bookie: Bookie, boot: Boot, checkpoints: CheckpointThread) -> End:
        """Phases 3 to 5, up to the server's end."""
        loop = asyncio.get_running_loop()
        running = self._running(bookie, boot)
        server, background = running.server, Background.of(running)
        checkpoints.on_failure(server.fail)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, server.request_stop)
        self._place = replace(self._place, port=await server.start())  # which a storage opened anew keeps
        registration = self._registration(running)
        self.monitoring.serves(Served(running, lambda: registration.is_registered))
        marking = loop.create_task(_mark_failure(bookie, boot, self._config.disk_check_s))
        working = loop.create_task(self._work(running, registration, background))
        try:
            await asyncio.wait((working, server.ended), return_when=asyncio.FIRST_COMPLETED)
            return server.ended.result() if server.ended.done() else working.result()
        finally:
            logger.info("bookie %s stops", boot.bookie_id)
            self.monitoring.stops()
            working.cancel()
            await asyncio.wait((working,))
            registration.stop_waiting()
            await loop.run_in_executor(None, registration.end)
            await server.stop()
            await loop.run_in_executor(None, background.stop)
            marking.cancel()

    async def _work(self, running: RunningBookie, registration: Registration, background: Background) -> End:
        """Register, start the background, and follow the disks until the storage is to be opened anew."""
        move, is_read_only = registration.set_read_only, registration.is_read_only
        availability = Availability(running.bookie, running.watch, move, self._may_boot, is_read_only=is_read_only)
        await asyncio.get_running_loop().run_in_executor(None, registration.keep)
        logger.info("bookie %s serves on %s:%d", running.bookie_id, self._place.host, self._place.port)
        background.start()
        running.administration.background = background
        await availability.keep(self._config.disk_check_s)
        return End.REOPEN

    def _running(self, bookie: Bookie, boot: Boot) -> RunningBookie:
        watch = DiskWatch(self.directories, self._config, self._disk)
        watch.look(bookie)
        administration = Administration(bookie, boot.bookie_id, watch)
        server = BookieServer(
            bookie,
            self._config,
            host=self._place.host,
            port=self._place.port,
            looks=lambda: watch.look(bookie),
            administer=administration.administer,
        )
        cluster = ClusterMember.of(self._store, self._znodes, boot.bookie_id)
        return RunningBookie(boot.bookie_id, bookie, self._config, cluster, watch, administration, server, self._peers)

    def _registration(self, running: RunningBookie) -> Registration:
        return Registration(
            self._store,
            self._znodes,
            self._address(running.bookie_id),
            patience_s=self._patience_s,
            is_read_only=not takes_adds(running.bookie),
        )

    def _address(self, bookie_id: str) -> BookieAddress:
        return BookieAddress(bookie_id, self._place.host, self._place.port, self._config.rack, self.monitoring.address)

    @property
    def _patience_s(self) -> float:
        """For the session of an earlier life to end."""
        return 2 * self._config.session_timeout_s

    def _may_boot(self) -> bool:
        try:
            self._store.sync(self._znodes.root)
        except MetadataUnavailableError as problem:
            logger.info("the storage is opened anew once the metadata store answers: %s", problem)
            return False
        return True


async def _mark_failure(bookie: Bookie, boot: Boot, interval_s: float) -> None:
    """Have the next boot know of a failed write or sync as soon as there is one, for this process may be killed."""
    while bookie.failure is None:
        await asyncio.sleep(interval_s)
    await asyncio.get_running_loop().run_in_executor(None, _note, boot, bookie.failure)


def _note(boot: Boot, failure: BaseException) -> None:
    """A full disk alone leaves what was synced as it was."""
    if not is_out_of_space(failure):
        boot.note_failed_sync()
