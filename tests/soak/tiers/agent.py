"""A process that tiers a log until it kills itself: ``python -m tests.soak.tiers.agent URI LOG CALL``.

Before or behind its call number CALL of the metadata store, the catalog or the store of files it dies as by SIGKILL; 0: never.
"""

from __future__ import annotations

import sys
import time

from bk_spark import BookKeeper
from bk_spark.errors import BookKeeperError
from bk_spark.lake.data_files import DataFiles
from bk_spark.lake.iceberg import IcebergTable
from bk_spark.log.changes.ledgers import LogLedgers
from bk_spark.metadata.zookeeper import ZooKeeperStore
from tests.soak.dying import die_at

CALLS: tuple[tuple[type, tuple[str, ...]], ...] = (
    (ZooKeeperStore, ("transaction", "set", "get_many", "sync")),
    (IcebergTable, ("look", "commit", "identified")),
    (DataFiles, ("write", "read_back", "missing", "folders", "delete_folder")),
    (LogLedgers, ("delete_listed",)),
)


def main() -> None:
    uri, log, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
    die_at(CALLS, last)
    with BookKeeper(uri) as client:
        while True:
            try:
                client.tier_log(log)
            except BookKeeperError as problem:
                print(f"{type(problem).__name__}: {problem}", flush=True)
            if not last:
                return
            time.sleep(0.05)  # a pace, not a wait for anything


if __name__ == "__main__":
    main()
