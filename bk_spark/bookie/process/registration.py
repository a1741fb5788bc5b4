"""Keeps a serving bookie registered, as writable or read-only, and has its storage opened anew after a full disk.

While its disks are full, while it is lapsed (boot_epoch_keeper.py), or after a failed write, sync or commit, a bookie is
registered as read-only. Clients then read there, fence and recover if it takes that, and choose other bookies for new entries.

What a failed write left on the disk is unknown, so the storage takes no more changes. If the only cause was a full disk, and
the disks are below the low watermark again and take and sync a file, the storage is opened anew: closed, and replayed as after
a kill, which loses nothing that was acked and synced. That is a boot like any other, so the metadata store must answer, too;
until then the bookie serves what it has. After any other failure it waits until an operator checks the disk and restarts it.

Without a journal for data the storage is not opened anew after a full disk either. The last acked adds may be in memory alone,
and disks tend to fill together: if all bookies opened anew at once, after one clean-up, the last copies would be lost.

Threads of the metadata store's client report a new session. While the bookie serves, it registers again in a thread of its own,
because it may have to wait for another session to end.

Ref: DESIGN.md, "Metadata in Apache's layout"; docs/rules.md, protocol rule 47, storage rules 6 and 9; situations 58, 68 and 88.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.process.disk_watch import DiskWatch, is_out_of_space
from bk_spark.errors import BookKeeperError, MetadataConflictError
from bk_spark.metadata.registration import BookieAddress, lookup, register, withdraw
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import ZooKeeperStore

PAUSE_S = 0.1
"""Between two looks at a registration that an earlier session of this bookie left behind."""

RETRY_S = 1.0
"""Between two tries of a serving bookie to register again: the session that prevents it ends within seconds."""

THREAD_NAME = "register-again"

logger = logging.getLogger(__name__)


def await_others(
    store: ZooKeeperStore,
    znodes: Znodes,
    address: BookieAddress,
    patience_s: float,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until this bookie is not registered at another address any more. Call this before a boot takes its number.

    Otherwise a copy of a running bookie's disks could take the number. Later that number would favour the copy, which lacks
    what was acked since it was made, over the original. The session of an earlier process ends by itself. A registration at
    this same address is of no running process: the caller checked that nothing listens there. The caller must have synced.

    Raises MetadataConflictError if another one is still registered after ``patience_s``, MetadataUnavailableError.
    """
    deadline = time.monotonic() + patience_s
    while (other := lookup(store, znodes, address.bookie_id)) is not None:
        if (other.host, other.port) == (address.host, address.port):
            return
        if time.monotonic() >= deadline:
            problem = f"a process at {other.place} serves it: stop that one, or wait for its session to expire"
            raise MetadataConflictError(f"bookie {address.bookie_id}", f"{problem}; a copy of its directories is no bookie")
        pause(PAUSE_S)


class Registration:
    """The registration of one bookie while it serves. The methods wait for the metadata store."""

    def __init__(
        self, store: ZooKeeperStore, znodes: Znodes, address: BookieAddress, patience_s: float, *, is_read_only: bool = False
    ) -> None:
        self._store = store
        self._znodes = znodes
        self._address = address
        self._patience_s = patience_s
        self.is_read_only = is_read_only
        """The mode in which the bookie is, or will be, registered."""
        self._registered_in: int | None = None
        """How many sessions were lost before the one in which it was registered last; None if it never was."""
        self._is_ended = threading.Event()
        self._lock = threading.Lock()

    def keep(self) -> None:
        """Register, now and in every later session. Waits for the session of an earlier process at another address to end."""
        deadline = time.monotonic() + self._patience_s
        self._store.on_new_session(self._register_in_thread)
        with self._lock:
            if self._is_ended.is_set():
                return
            self._register(lambda: self._pause(deadline))

    def set_read_only(self, is_read_only: bool) -> None:
        """Move to the read-only bookies, or back. Later sessions register in that mode, even if this raises BookKeeperError."""
        with self._lock:
            self.is_read_only = is_read_only
            if self._registered_in is not None and not self._is_ended.is_set():
                self._register()

    def problem(self) -> str:
        """Why clients may not find the bookie in the metadata store; "" if they find it. Any thread, without waiting."""
        session = self._store.session
        if self._registered_in is None:
            return "it has not registered yet"
        if self._registered_in != session.lost:
            return "its ZooKeeper session was lost, and it has not registered again yet"
        silent_s = session.silent_s(time.monotonic())
        if silent_s >= session.timeout_s:
            return f"there has been no connection to ZooKeeper for {silent_s:.0f} s, so its registration may be gone"
        return ""

    def stop_waiting(self) -> None:
        """Stop trying to register, now and later."""
        self._is_ended.set()

    def end(self) -> None:
        """Leave the list of bookies, so that no client starts anything new here. Another process's registration stays."""
        with self._lock:
            if self._registered_in is not None:
                with suppress(BookKeeperError):  # at the latest it disappears with the session, which ends with this process
                    withdraw(self._store, self._znodes, self._address)

    def _register_in_thread(self) -> None:
        """The store's thread for callbacks also serves all watches of the bookie, so it must not wait."""
        threading.Thread(target=self._register_again, name=THREAD_NAME, daemon=True).start()

    def _register_again(self) -> None:
        """Try until it succeeds or the bookie stops: no client finds a serving bookie that is not listed."""
        while not self._is_ended.is_set():
            logger.warning("the ZooKeeper session was lost, bookie %s registers again", self._address.bookie_id)
            try:
                with self._lock:
                    if not self._is_ended.is_set():
                        self._register()
                return
            except BookKeeperError as problem:
                logger.warning(
                    "bookie %s is not registered, it tries again in %g s: %s", self._address.bookie_id, RETRY_S, problem
                )
            self._is_ended.wait(RETRY_S)

    def _register(self, pause: Callable[[], bool] = lambda: False) -> None:
        """With the lock."""
        lost = self._store.session.lost  # before: a session that is lost meanwhile may take the registration along
        register(self._store, self._znodes, self._address, self.is_read_only, pause=pause)
        self._registered_in = lost

    def _pause(self, deadline: float) -> bool:
        return not self._is_ended.wait(PAUSE_S) and time.monotonic() < deadline


def takes_adds(bookie: Bookie) -> bool:
    """Whether clients may choose this bookie for new entries."""
    return not (bookie.is_read_only or bookie.lapse or bookie.failure is not None or bookie.ids_above)


class Availability:
    """Used on the event loop."""

    def __init__(self, bookie: Bookie, watch: DiskWatch, registration: Registration, may_boot: Callable[[], bool]) -> None:
        """``watch`` is the one that the bookie's sync thread uses; ``may_boot`` waits for the metadata store's answer."""
        self._bookie = bookie
        self._watch = watch
        self._registration = registration
        self._may_boot = may_boot
        self._is_writable: bool | None = not registration.is_read_only
        """As which it is registered; None after a try that failed, because the next session registers it as was tried."""
        self._is_explained = False

    async def keep(self, interval_s: float) -> None:
        """Keep the registration up to date. Returns when the storage is to be opened anew."""
        while not await self._can_reopen():
            self._explain()
            await self._register()
            await asyncio.sleep(interval_s)

    async def _register(self) -> None:
        wanted = takes_adds(self._bookie)
        if wanted == self._is_writable:
            return
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._registration.set_read_only, not wanted)
        except BookKeeperError as problem:
            self._is_writable = None
            logger.warning("the registration cannot be moved, it is tried again: %s", problem)
        else:
            self._is_writable = wanted

    async def _can_reopen(self) -> bool:
        if not is_out_of_space(self._bookie.failure) or self._bookie.may_forget or self._watch.state.problem:
            return False
        return await asyncio.get_running_loop().run_in_executor(None, lambda: self._may_boot() and self._watch.probe())

    def _explain(self) -> None:
        """Log once why the bookie takes no more changes, and what to do."""
        failure = self._bookie.failure
        if failure is None or self._is_explained:
            return
        self._is_explained = True
        remedy = "look at the disk, replace it if need be, and start this bookie again"
        if self._bookie.may_forget:
            remedy += "; what was acked last may be in its memory alone: start such bookies one by one, each after the "
            remedy += "limbo of the one before is over"
        elif is_out_of_space(failure):
            remedy = "it opens its storage anew as soon as there is space: delete files of others, or add disk"
        logger.error("the bookie takes no change and serves reads alone, because: %s; %s", failure, remedy)
