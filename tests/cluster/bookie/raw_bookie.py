"""What the tests of lost and repaired data ask one real bookie, and what its entries are."""

from __future__ import annotations

import time

from bk_spark.local.cluster import LocalBookie
from bk_spark.wire.messages import Status
from tests.cluster.bookie.asked_bookie import AskedBookie

DEADLINE_S = 60.0
SMALL, LARGE = 10, 100_000
"""Bytes of an entry below and above what passes through the journal."""


def payload(entry_id: int, size: int) -> bytes:
    return b"%d " % entry_id * (size // len(b"%d " % entry_id))


def add(bookie: LocalBookie, ledger_id: int, entry_id: int, size: int = SMALL) -> Status:
    """What the bookie answers to the writer's next entry."""
    with AskedBookie(bookie) as asked:
        return asked.add(ledger_id, entry_id, payload(entry_id, size))


def read(bookie: LocalBookie, ledger_id: int, first: int, last: int) -> tuple[dict[int, bytes], Status]:
    """What the bookie has of some entries, and what it says of the first that it does not give."""
    with AskedBookie(bookie) as asked:
        return asked.read(ledger_id, first, last)


def await_end_of_limbo(bookie: LocalBookie, ledger_id: int, last: int) -> None:
    """Until the bookie says no again."""
    deadline = time.monotonic() + DEADLINE_S
    while read(bookie, ledger_id, last + 1, last + 1)[1] is not Status.NO_SUCH_ENTRY:
        assert time.monotonic() < deadline
        time.sleep(0.05)
