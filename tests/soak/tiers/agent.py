"""A process that tiers a log until it kills itself: ``python -m tests.soak.tiers.agent URI LOG CALL``.

Before or behind its call number CALL of the metadata store, the catalog or the store of files it dies as by SIGKILL; 0: never.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from bk_spark import BookKeeper
from bk_spark.errors import BookKeeperError
from bk_spark.lake.data_files import DataFiles
from bk_spark.lake.iceberg import IcebergTable
from bk_spark.log.changes.ledgers import LogLedgers
from bk_spark.metadata.zookeeper import ZooKeeperStore

CALLS: tuple[tuple[type, tuple[str, ...]], ...] = (
    (ZooKeeperStore, ("transaction", "set", "get_many", "sync")),
    (IcebergTable, ("look", "commit", "identified")),
    (DataFiles, ("write", "read_back", "missing", "folders", "delete_folder")),
    (LogLedgers, ("delete_listed",)),
)


def main() -> None:
    uri, log, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
    _die_at(last)
    with BookKeeper(uri) as client:
        while True:
            try:
                client.tier_log(log)
            except BookKeeperError as problem:
                print(f"{type(problem).__name__}: {problem}", flush=True)
            if not last:
                return
            time.sleep(0.05)  # a pace, not a wait for anything


def _die_at(last: int) -> None:
    count = 0
    dies_behind = random.Random(last).random() < 0.5

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            is_last = count == last
            if is_last and not dies_behind:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return call(*arguments, **named)
            finally:
                if is_last:
                    os.kill(os.getpid(), signal.SIGKILL)

        return wrapper

    for owner, names in CALLS:
        for name in names:
            setattr(owner, name, counted(getattr(owner, name)))


if __name__ == "__main__":
    main()
