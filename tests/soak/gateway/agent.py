"""A gateway that kills itself: ``python -m tests.soak.gateway.agent CALL BUG WORD…``, words as of ``bk-spark``.

Before or behind its call number CALL it dies as by SIGKILL; 0: never. Calls are those of the metadata store, the last look
before a commit, and the answer behind it. BUG is the name of a deliberate bug, or empty.
"""

from __future__ import annotations

import sys

from bk_spark import cli
from bk_spark.gateway.calls.appends import WholeStream
from bk_spark.metadata.zookeeper import ZooKeeperStore
from tests.soak.dying import die_at
from tests.soak.gateway.bugs import BUGS

CALLS = ("transaction", "set", "get_many", "sync", "create", "delete")


def main() -> None:
    call, bug, *words = sys.argv[1:]
    if bug:
        BUGS[bug]()
    die_at([(ZooKeeperStore, CALLS), (WholeStream, ("_check_end",))], int(call))
    sys.exit(cli.main(words))


if __name__ == "__main__":
    main()
