"""A cluster with something to look at: ledgers in several fragments, a log of many ledgers that is written, a lost bookie.

For the tests of the page and for its picture.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bk_spark.bookkeeper import BookKeeper
from bk_spark.local.cluster import DEFAULT_BOOKIE_CONFIG, LocalBookie, LocalCluster
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.log_handle import Log
from bk_spark.log.stream.cursors import Cursor
from bk_spark.log.stream.positions import StreamPosition
from bk_spark.metadata.registration import unregister
from bk_spark.metadata.under_replication import UnderReplication

LOG = "orders"
MARKUP = "<img src=x onerror=document.title='owned'>"
"""What must stay text wherever it comes from."""

SECRET = b"a-password-nobody-sees"


@dataclass(frozen=True, slots=True)
class Lively:
    """What there is to see."""

    cluster: LocalCluster
    client: BookKeeper
    fragmented: int
    """A closed ledger of two fragments, striped, part of it on the lost bookie; its custom metadata is markup."""
    lost: str
    """The bookie that was killed."""


@contextlib.contextmanager
def lively_cluster(bookies: int = 4, log_ledgers: int = 12) -> Iterator[Lively]:
    """At least four bookies, of which the last one is lost in the end."""
    config = replace(DEFAULT_BOOKIE_CONFIG, http_port=0)
    with LocalCluster(bookies=bookies, bookie_config=config) as cluster, BookKeeper(cluster.metadata_uri) as client:
        log = fill_log(client, log_ledgers)
        publish_cursor(client, log, behind=log_ledgers // 3)
        fragmented, lost = lose_a_bookie(cluster, client)
        marks = UnderReplication(client.metadata_store, client.znodes)
        marks.mark(fragmented, [lost])
        marks.try_lock(fragmented, "worker-1")
        yield Lively(cluster, client, fragmented, lost)


def fill_log(client: BookKeeper, ledgers: int, seed: int = 7) -> Log:
    """A log of closed ledgers of very different sizes."""
    chance = random.Random(seed)
    log = client.open_log(LOG, create=True)
    for _ in range(ledgers):
        with client.create_ledger(3, 2, 2, password=SECRET) as writer:
            writer.append_batch([bytes(chance.randrange(200, 2000))] * chance.randrange(5, 120))
        log.append_ledgers([writer.ledger_id])
    return log


def publish_cursor(client: BookKeeper, log: Log, behind: int) -> None:
    """As a stream does that has ``behind`` ledgers to read."""
    versions = log.versions()
    at, ledger = versions[-1 - behind], log.ledgers()[-1 - behind]
    cursor = Cursor("dashboard-stream", StreamPosition(at.version, 0, ledger.ledger_id, 3), at.end_row, is_named=True)
    client.logs.cursors.publish(log.name, log.uid, cursor)


def lose_a_bookie(cluster: LocalCluster, client: BookKeeper) -> tuple[int, str]:
    """A ledger whose writer sees the last bookie die: gives the ledger and the bookie."""
    size = len(cluster.bookies) - 1
    last = cluster.bookies[-1]
    while True:
        writer = client.create_ledger(
            size, 2, 2, password=SECRET, custom_metadata={"note": MARKUP.encode(), "raw": b"\x00\xff"}
        )
        if last.bookie_id in client.ledger_metadata(writer.ledger_id).last_fragment.ensemble:
            break
        writer.close()
    with writer:
        for _ in range(40):
            writer.append(bytes(500))
        kill(client, last)
        for _ in range(80):
            writer.append(bytes(500))
    return writer.ledger_id, last.bookie_id


def kill(client: BookKeeper, bookie: LocalBookie) -> None:
    """For good; its registration goes at once instead of with its session."""
    bookie.kill()
    unregister(client.metadata_store, client.znodes, bookie.bookie_id)


@contextlib.contextmanager
def load(client: BookKeeper, name: str, entries_a_turn: int = 200) -> Iterator[None]:
    """A writer that appends to a log, and a reader of it, until the end of the block."""
    stopped = threading.Event()
    threads = [threading.Thread(target=work, args=(client, name, entries_a_turn, stopped)) for work in (_write, _read)]
    client.open_log(name, create=True)
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def _write(client: BookKeeper, name: str, entries_a_turn: int, stopped: threading.Event) -> None:
    chance = random.Random(1)
    with client.open_log(name).open_writer(2, 2, 2, roll_bytes=16 * 1024 * 1024) as writer:
        while not stopped.wait(0.1):
            writer.append_batch([bytes(600)] * chance.randrange(entries_a_turn // 2, entries_a_turn * 2))


def _read(client: BookKeeper, name: str, entries_a_turn: int, stopped: threading.Event) -> None:
    """Follows the log: everything is read once."""
    start: LogPosition | None = None
    while not stopped.wait(0.7):
        for batch in client.open_log(name).read(start):
            start = LogPosition(batch.column("ledger_id")[-1].as_py(), batch.column("entry_id")[-1].as_py() + 1)
