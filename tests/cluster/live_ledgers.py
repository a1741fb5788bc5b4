"""What the tests over real bookie processes share: trouble for bookies, and what a ledger holds."""

from __future__ import annotations

import time
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.config import BookieConfig, ClientConfig
from bk_spark.errors import LedgerClosedError, LedgerFencedError
from bk_spark.local.cluster import LocalBookie, LocalCluster
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.zookeeper import connect

DEADLINE_S = 60.0
"""How long a test waits for what must come."""

SESSION_S = BookieConfig().session_timeout_s
"""After which the cluster takes a suspended bookie for gone; a third of it may be over when it is suspended."""

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
        start(*bookies)


def start(*bookies: LocalBookie) -> None:
    """Side by side. Afterwards they are registered, and take connections."""
    if bookies:
        uri, auth = bookies[0]._metadata_uri, bookies[0].config.zookeeper_auth
        with connect(uri, connect_timeout_s=DEADLINE_S, session_timeout_s=SESSION_S, auth=auth) as store:
            for step in (LocalBookie.launch, LocalBookie.await_ready):
                for bookie in bookies:
                    step(bookie, store)


@contextmanager
def suspended(*bookies: LocalBookie) -> Iterator[None]:
    """Afterwards they are registered, also those whose session ended meanwhile, which register again only then."""
    began_s = time.monotonic()
    with ExitStack() as undo:
        for bookie in bookies:
            bookie.suspend()
            undo.callback(bookie.resume)
        yield
    if time.monotonic() - began_s > SESSION_S / 2:
        for bookie in bookies:
            _await_ready(bookie)


def _await_ready(bookie: LocalBookie) -> None:
    if bookie.pid is not None:
        with connect(bookie._metadata_uri, connect_timeout_s=DEADLINE_S, session_timeout_s=SESSION_S) as store:
            bookie.await_ready(store)


def refused(writer: WriteHandle) -> bool:
    """Whether the writer learns that its ledger was taken from it."""
    return isinstance(writer.append_async(b"late").exception(DEADLINE_S), (LedgerFencedError, LedgerClosedError))


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
