"""A bookie's life from start to stop: check its identity, replay, serve, register, and the same backwards."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.cookie import check_cookie
from bk_spark.bookie.server import BookieServer
from bk_spark.config import BookieConfig
from bk_spark.errors import BookKeeperError
from bk_spark.registration import BookieAddress, check_layout, register, unregister
from bk_spark.znodes import Znodes
from bk_spark.zookeeper import ZooKeeperStore

PAUSE_S = 0.1
"""Between two looks at a registration that an earlier session of this bookie left behind."""

RETRY_S = 1.0
"""Between two tries of a serving bookie to register again: what hinders it is another session, which ends within seconds."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BookiePlace:
    """Where a bookie keeps its files and where it listens."""

    data_dir: Path
    host: str
    port: int
    """0 for a free one."""


class Registration:
    """Keeps a bookie registered, through lost sessions too, while it serves."""

    def __init__(self, store: ZooKeeperStore, znodes: Znodes, address: BookieAddress, patience_s: float) -> None:
        self._store = store
        self._znodes = znodes
        self._address = address
        self._patience_s = patience_s
        self._is_registered = False
        self._is_ended = threading.Event()

    def keep(self) -> None:
        """Register, now and in every later session. Waits for an earlier life's session to end, at another address."""
        deadline = time.monotonic() + self._patience_s
        self._store.on_new_session(self._again)
        register(self._store, self._znodes, self._address, pause=lambda: self._pause(deadline))
        self._is_registered = True

    def stop_waiting(self) -> None:
        """Give up what is not registered yet."""
        self._is_ended.set()

    def end(self) -> None:
        """Leave the list of bookies, so that no client starts anything new here. What another one registered stays."""
        if not self._is_registered:
            return
        with suppress(BookKeeperError):  # at the latest it goes with the session, which ends with this process
            unregister(self._store, self._znodes, self._address.bookie_id)

    def _again(self) -> None:
        """Try until it succeeds or the bookie stops: one that serves and is not listed is lost to all clients."""
        log.warning("the ZooKeeper session was lost, bookie %s registers again", self._address.bookie_id)
        while not self._is_ended.is_set():
            try:
                register(self._store, self._znodes, self._address)
                return
            except BookKeeperError as problem:
                log.warning(
                    "bookie %s is not registered, it tries again in %g s: %s", self._address.bookie_id, RETRY_S, problem
                )
            self._is_ended.wait(RETRY_S)

    def _pause(self, deadline: float) -> bool:
        return not self._is_ended.wait(PAUSE_S) and time.monotonic() < deadline


def run_bookie(place: BookiePlace, store: ZooKeeperStore, znodes: Znodes, config: BookieConfig) -> None:
    """Serve until SIGTERM or SIGINT. Raises ConfigError and CorruptionError where it must not start."""
    check_layout(store, znodes)
    bookie_id = check_cookie(place.data_dir, store, znodes)
    bookie = Bookie.open(place.data_dir, bookie_id, config)
    try:
        asyncio.run(_serve(bookie, bookie_id, place, store, znodes, config))
    finally:
        bookie.close()


async def _serve(
    bookie: Bookie, bookie_id: str, place: BookiePlace, store: ZooKeeperStore, znodes: Znodes, config: BookieConfig
) -> None:
    loop = asyncio.get_running_loop()
    server = BookieServer(bookie, config, host=place.host, port=place.port)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.request_stop)
    port = await server.start()
    address = BookieAddress(bookie_id, place.host, port, config.rack)
    registration = Registration(store, znodes, address, patience_s=2 * config.session_timeout_s)
    registering = loop.run_in_executor(None, registration.keep)
    try:
        await asyncio.wait((registering, server.ended), return_when=asyncio.FIRST_COMPLETED)
        if not server.ended.done():
            await registering
            log.info("bookie %s serves on %s:%d", bookie_id, place.host, port)
        await server.ended
    finally:
        log.info("bookie %s stops", bookie_id)
        registration.stop_waiting()
        await asyncio.wait((registering,))
        await loop.run_in_executor(None, registration.end)
        await server.stop()
