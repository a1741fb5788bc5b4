"""Registers a bookie as writable or read-only, and has its storage opened anew after a full disk.

While its disks are full, or after a failed write, sync or commit, a bookie is registered as read-only. Clients then read, fence
and recover there, and choose other bookies for new entries.

What a failed write left on the disk is unknown, so the storage takes no more changes (docs/rules.md, storage rule 6). If the
only cause was a full disk, and the disks are below the low watermark again and take and sync a file, the storage is opened
anew: closed, and replayed as after a kill, which loses nothing that was acked and synced. That is a boot like any other, so the
metadata store must answer, too; until then the bookie goes on serving what it has. After any other failure it waits until an
operator has looked at the disk and starts it again.

Without a journal for data the storage is not opened anew after a full disk either. The last acked adds may be in memory alone,
and disks tend to fill together: if all bookies opened anew at once, after one clean-up of all disks, the last copies would be
lost.

Ref: protocol rule 47; situations 58 and 68.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.process.disk_watch import DiskWatch, is_out_of_space
from bk_spark.bookie.process.registration import Registration
from bk_spark.errors import BookKeeperError

logger = logging.getLogger(__name__)


def takes_adds(bookie: Bookie) -> bool:
    """Whether clients may choose this bookie for new entries."""
    return not bookie.is_read_only and bookie.failure is None


class Availability:
    """Used on the event loop."""

    def __init__(self, bookie: Bookie, watch: DiskWatch, registration: Registration, may_boot: Callable[[], bool]) -> None:
        """``watch`` is the one that the bookie's sync thread uses; ``may_boot`` waits for the metadata store's answer."""
        self._bookie = bookie
        self._watch = watch
        self._registration = registration
        self._may_boot = may_boot
        self._is_writable = not registration.is_read_only
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
