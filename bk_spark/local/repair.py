"""Starts processes of a local cluster again that have ended, whatever ended them."""

from __future__ import annotations

import logging
import time
from contextlib import suppress

from bk_spark.bookie.identity.boot_file import BOOT_FILE
from bk_spark.bookie.identity.cookie_file import COOKIE_FILE
from bk_spark.errors import MetadataUnavailableError, ProcessFailedError, StorageError
from bk_spark.local.cluster import LocalCluster
from bk_spark.local.refusals import reason_of

REPAIR_PAUSE_S = 10.0
"""After ZooKeeper could not be started again, before the next try."""

REFUSED_PAUSE_S = 60.0
"""Before a bookie that refused its start is tried again. Its reason seldom goes by itself, as a full disk does; and each try
locks its directories for a second or two, which keeps 'bk-spark cookie fix' out."""

logger = logging.getLogger(__name__)


class Repair:
    """Call it often: it looks, and seldom has to do something."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._not_before_s = 0.0
        self._refused_at_s = time.monotonic()
        self._seen = self._files()

    def __call__(self) -> None:
        """Raises ConfigError if nothing can be started any more."""
        now_s = time.monotonic()
        if now_s < self._not_before_s:
            return
        is_due = now_s >= self._refused_at_s + REFUSED_PAUSE_S or self._files() != self._seen
        try:
            self._cluster.restart_ended(refused=is_due)
        except (ProcessFailedError, MetadataUnavailableError, StorageError) as problem:
            self._not_before_s = time.monotonic() + REPAIR_PAUSE_S
            logger.warning("the cluster is not whole, and is mended again in %g s: %s", REPAIR_PAUSE_S, reason_of(problem))
        if is_due:
            self._refused_at_s = time.monotonic()
        self._seen = self._files()

    def _files(self) -> list[object]:
        """What an operator's repair of a refused bookie changes."""
        found: list[object] = []
        for refused in self._cluster.refused:
            found.append(refused.name)
            for name in (COOKIE_FILE, BOOT_FILE):
                with suppress(OSError):
                    status = (refused.data_dir / name).stat()
                    found.append((status.st_ino, status.st_mtime_ns))
        return found
