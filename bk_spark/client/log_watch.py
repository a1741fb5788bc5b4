"""Being told when a log changes, instead of asking again and again."""

from __future__ import annotations

from collections.abc import Callable

from bk_spark.client.log_layout import Head
from bk_spark.client.log_names import LogNames
from bk_spark.metadata_store import MetadataStore
from bk_spark.znodes import Znodes


class LogWatch:
    """Watches of heads and of ledgers. Each gives back the function that ends it; callbacks must be brief."""

    def __init__(self, store: MetadataStore, znodes: Znodes, names: LogNames) -> None:
        self._store = store
        self._znodes = znodes
        self._names = names

    def head(self, uid: str, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` after every commit to the log, after other changes of its head, and when it goes."""
        return self._store.watch(self._names.paths(uid).head, on_change)

    def ledger(self, ledger_id: int, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` when a ledger's metadata changes, as when it is closed, and when it goes."""
        return self._store.watch(self._znodes.ledger(ledger_id), on_change)

    def fresh_head(self, name: str, uid: str) -> Head:
        """The head with every commit that was done before the call, whichever server this client talks to.

        Raises NoSuchLogError, MetadataUnavailableError.
        """
        self._store.sync(self._names.paths(uid).head)
        return self._names.head(name, uid).head
