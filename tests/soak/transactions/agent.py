"""Writes transactions until it kills itself: ``python -m tests.soak.transactions.agent URI WRITER FIRST CALL LAST``.

It writes the transactions FIRST to LAST of a writer, and says each one's number once it is committed. Before or behind its
call number CALL of the metadata store it dies as by SIGKILL; 0: never.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable
from typing import Any

from bk_spark import BookKeeper
from bk_spark.metadata.zookeeper import ZooKeeperStore
from tests.soak.transactions.rows import logs_of, rows_of

CALLS = ("transaction", "set", "get_many", "sync", "create", "delete")


def main() -> None:
    uri, writer = sys.argv[1:3]
    first, call, last = map(int, sys.argv[3:])
    _die_at(call)
    with BookKeeper(uri) as client:
        for number in range(first, last + 1):
            with client.transaction((writer, number)) as transaction:
                for log in logs_of(number):
                    transaction.append_rows(log, rows_of(writer, number))
            print(number, flush=True)


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

    for name in CALLS:
        setattr(ZooKeeperStore, name, counted(getattr(ZooKeeperStore, name)))


if __name__ == "__main__":
    main()
