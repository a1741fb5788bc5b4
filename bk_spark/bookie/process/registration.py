"""The registration of a serving bookie, kept through lost sessions and moved between writable and read-only.

``threading`` and ``time`` are here, against the import table: sessions are renewed by threads of the metadata store's client,
and the end of another session is waited for, in a thread of its own where the bookie serves.

Ref: DESIGN.md, "Metadata in Apache's layout"; docs/rules.md, protocol rule 47, storage rule 9; situations 68 and 88.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress

from bk_spark.errors import BookKeeperError, MetadataConflictError
from bk_spark.metadata.registration import BookieAddress, lookup, register, withdraw
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import ZooKeeperStore

PAUSE_S = 0.1
"""Between two looks at a registration that an earlier session of this bookie left behind."""

RETRY_S = 1.0
"""Between two tries of a serving bookie to register again: what hinders it is another session, which ends within seconds."""

THREAD_NAME = "register-again"

logger = logging.getLogger(__name__)


def await_others(store: ZooKeeperStore, znodes: Znodes, address: BookieAddress, patience_s: float) -> None:
    """Wait until nobody is registered as this bookie at another address. To be called before a boot takes its number.

    A number that a copy of a running bookie's disks took would later speak for the copy, which lacks what was acked since it
    was made, and against the original. The session of an earlier life ends by itself. Whoever is registered at this address
    does not live: the caller saw that nobody listens there. Reads after a ``sync`` of the caller's.

    Raises MetadataConflictError if somebody is still registered after ``patience_s``, MetadataUnavailableError.
    """
    deadline = time.monotonic() + patience_s
    while (other := lookup(store, znodes, address.bookie_id)) is not None:
        if (other.host, other.port) == (address.host, address.port):
            return
        if time.monotonic() >= deadline:
            problem = f"a process at {other.host}:{other.port} serves it: stop that one, or wait for its session to expire"
            raise MetadataConflictError(f"bookie {address.bookie_id}", f"{problem}; a copy of its directories is no bookie")
        time.sleep(PAUSE_S)


class Registration:
    """Keeps a bookie registered, through lost sessions too, while it serves. Its methods wait for the metadata store."""

    def __init__(
        self, store: ZooKeeperStore, znodes: Znodes, address: BookieAddress, patience_s: float, *, is_read_only: bool = False
    ) -> None:
        self._store = store
        self._znodes = znodes
        self._address = address
        self._patience_s = patience_s
        self._is_read_only = is_read_only
        self._is_registered = False
        self._is_ended = threading.Event()
        self._lock = threading.Lock()

    @property
    def is_read_only(self) -> bool:
        """The mode that it is, or is to be, registered in."""
        return self._is_read_only

    @property
    def is_registered(self) -> bool:
        """Whether it was registered; a session that is lost afterwards is renewed."""
        return self._is_registered

    def keep(self) -> None:
        """Register, now and in every later session. Waits for an earlier life's session to end, at another address."""
        deadline = time.monotonic() + self._patience_s
        self._store.on_new_session(self._again)
        with self._lock:
            if self._is_ended.is_set():
                return
            register(self._store, self._znodes, self._address, self._is_read_only, pause=lambda: self._pause(deadline))
            self._is_registered = True

    def set_read_only(self, is_read_only: bool) -> None:
        """Move to the read-only bookies, or back. A later session registers likewise, also if this raises BookKeeperError."""
        with self._lock:
            self._is_read_only = is_read_only
            if self._is_registered and not self._is_ended.is_set():
                register(self._store, self._znodes, self._address, is_read_only)

    def stop_waiting(self) -> None:
        """Give up what is not registered yet, and register nothing more."""
        self._is_ended.set()

    def end(self) -> None:
        """Leave the list of bookies, so that no client starts anything new here. What another one registered stays."""
        with self._lock:
            if self._is_registered:
                with suppress(BookKeeperError):  # at the latest it goes with the session, which ends with this process
                    withdraw(self._store, self._znodes, self._address)

    def _again(self) -> None:
        """In a thread of its own: the store's one for callbacks also serves every watch of the bookie."""
        threading.Thread(target=self._try_again, name=THREAD_NAME, daemon=True).start()

    def _try_again(self) -> None:
        """Until it succeeds or the bookie stops: one that serves and is not listed is lost to all clients."""
        while not self._is_ended.is_set():
            logger.warning("the ZooKeeper session was lost, bookie %s registers again", self._address.bookie_id)
            try:
                self._register_again()
                return
            except BookKeeperError as problem:
                logger.warning(
                    "bookie %s is not registered, it tries again in %g s: %s", self._address.bookie_id, RETRY_S, problem
                )
            self._is_ended.wait(RETRY_S)

    def _register_again(self) -> None:
        with self._lock:
            if not self._is_ended.is_set():
                register(self._store, self._znodes, self._address, self._is_read_only)

    def _pause(self, deadline: float) -> bool:
        return not self._is_ended.wait(PAUSE_S) and time.monotonic() < deadline
