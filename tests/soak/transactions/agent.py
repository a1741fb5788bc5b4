"""Writes transactions until it kills itself: ``python -m tests.soak.transactions.agent URI WRITER FIRST CALL LAST``.

It writes the transactions FIRST to LAST of a writer, and says each one's number once it is committed. Before or behind its
call number CALL of the metadata store it dies as by SIGKILL; 0: never.
"""

from __future__ import annotations

import sys

from bk_spark import BookKeeper
from bk_spark.metadata.zookeeper import ZooKeeperStore
from tests.soak.dying import die_at
from tests.soak.transactions.rows import logs_of, rows_of

CALLS = ("transaction", "set", "get_many", "sync", "create", "delete")


def main() -> None:
    uri, writer = sys.argv[1:3]
    first, call, last = map(int, sys.argv[3:])
    die_at([(ZooKeeperStore, CALLS)], call)
    with BookKeeper(uri) as client:
        for number in range(first, last + 1):
            with client.transaction((writer, number)) as transaction:
                for log in logs_of(number):
                    transaction.append_rows(log, rows_of(writer, number))
            print(number, flush=True)


if __name__ == "__main__":
    main()
