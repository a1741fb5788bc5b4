"""What the tests over real bookie processes share: trouble for bookies, and what a ledger holds."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.config import ClientConfig
from bk_spark.local.cluster import LocalBookie, LocalCluster
from bk_spark.metadata.ledger_metadata import LedgerMetadata

DEADLINE_S = 60.0
"""How long a test waits for what must come."""

BRISK = ClientConfig(read_timeout_s=1.0, add_timeout_s=1.5, speculative_read_s=0.2, replacement_retry_s=0.5, explicit_lac_s=0.3)

_T = TypeVar("_T")


def result_of(client: BookKeeper, work: Coroutine[Any, Any, _T]) -> _T:
    """What a coroutine gives back, run on the client's event loop."""
    return client.context.submit(work).result(DEADLINE_S)


@contextmanager
def killed(*bookies: LocalBookie) -> Iterator[None]:
    for bookie in bookies:
        bookie.kill()
    try:
        yield
    finally:
        for bookie in bookies:
            bookie.start()


@contextmanager
def suspended(*bookies: LocalBookie) -> Iterator[None]:
    with ExitStack() as undo:
        for bookie in bookies:
            bookie.suspend()
            undo.callback(bookie.resume)
        yield


def bookies_of(cluster: LocalCluster, metadata: LedgerMetadata) -> list[LocalBookie]:
    """The last ensemble, in the order of its slots."""
    by_id = {bookie.bookie_id: bookie for bookie in cluster.bookies}
    return [by_id[bookie_id] for bookie_id in metadata.last_fragment.ensemble]


def payloads(reader: ReadHandle, first: int = 0, last: int | None = None) -> list[bytes]:
    """The payloads up to ``last``, by default up to the last add confirmed; checks that their ids have no gap."""
    last = reader.last_add_confirmed if last is None else last
    batches = list(reader.read(first, last)) if last >= first else []
    ids = [entry_id for batch in batches for entry_id in batch.column("entry_id").to_pylist()]
    assert ids == list(range(first, last + 1))
    return [payload for batch in batches for payload in batch.column("payload").to_pylist()]


def eventually_last_add_confirmed(reader: ReadHandle, entry_id: int, deadline_s: float = DEADLINE_S) -> None:
    """Fails unless readers come to see ``entry_id`` confirmed."""
    assert reader.wait_for_last_add_confirmed(entry_id - 1, deadline_s) >= entry_id
