"""A local cluster of one size, filled step by step with what operations need."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from benchmarks.scale.made_bookie import fill_bookie
from benchmarks.scale.made_ledgers import draw_ids, held_by_first
from benchmarks.scale.made_logs import LogMaker
from benchmarks.scale.size import BOOKIES, LEDGERS_OF_LOG, Size
from bk_spark.bookkeeper import BookKeeper
from bk_spark.local import zookeeper_server
from bk_spark.local.cluster import LocalCluster
from bk_spark.metadata.registration import BookieAddress, register, unregister

RUNNING = 3
ABSENT = tuple(f"10.0.0.{number}:3181" for number in range(RUNNING + 1, BOOKIES + 1))
"""Bookies that ledgers name and that do not run. They are registered as read-only, so nobody chooses or counts them as lost."""

LEDGERS, LOGS, HELD, ORPHANS = "ledgers", "logs", "held", "orphans"
"""What an operation may need."""
FIRST = (LEDGERS, LOGS)
"""Made before the first operation, which may create ledgers: their ids are drawn behind these."""


@dataclass
class MadeCluster:
    """A cluster that is filled. Leaves ``lose`` the registration of an absent bookie."""

    local: LocalCluster
    client: BookKeeper
    size: Size
    filled: dict[str, float] = field(default_factory=dict)
    """What was made → how long it took, in seconds."""

    @property
    def uri(self) -> str:
        return self.local.metadata_uri

    @property
    def bookies(self) -> Sequence[str]:
        """Those that ledgers name, the running ones first."""
        return (*(one.bookie_id for one in self.local.bookies), *ABSENT)

    def need(self, parts: Sequence[str]) -> None:
        """Make what is not there yet."""
        makers: dict[str, Callable[[], None]] = {
            LEDGERS: self._make_ledgers,
            LOGS: lambda: self._maker.write_many(self.size),
            ORPHANS: lambda: self._maker.leave_orphans(self.size),
            HELD: self._fill_bookie,
        }
        for part in parts:
            if part not in self.filled:
                began_s = time.perf_counter()
                makers[part]()
                self.filled[part] = time.perf_counter() - began_s
                print(f"  made {part} in {self.filled[part]:.1f} s", file=sys.stderr, flush=True)

    def lose(self) -> str:
        """The last absent bookie is registered no more. Returns its id."""
        unregister(self.client.metadata_store, self.client.znodes, ABSENT[-1])
        return ABSENT[-1]

    @property
    def _maker(self) -> LogMaker:
        return LogMaker(self.client.logs, self.client.znodes, self.bookies)

    def _make_ledgers(self) -> None:
        """With those of the many logs, whether these are made or not: ids are drawn once."""
        draw_ids(self.client.metadata_store, self.client.znodes, self.size.ledgers + self.size.logs * LEDGERS_OF_LOG)
        self._maker.write_long(self.size)

    def _fill_bookie(self) -> None:
        fill_bookie(self.local.bookies[0], self.bookies, held_by_first(self.size.ledgers))


@contextmanager
def made_cluster(size: Size, directory: Path, heap: str) -> Iterator[MadeCluster]:
    """Three bookies and ZooKeeper with so much memory, such as ``4g``. Everything else is made when it is needed."""
    options = [f"-Xmx{heap}" if one.startswith("-Xmx") else one for one in zookeeper_server._JAVA_OPTIONS]
    with ExitStack() as stack:
        stack.enter_context(patch.object(zookeeper_server, "_JAVA_OPTIONS", tuple(options)))
        local = stack.enter_context(LocalCluster(bookies=RUNNING, data_dir=directory))
        client = stack.enter_context(BookKeeper(local.metadata_uri))
        for bookie_id in ABSENT:
            host, _, port = bookie_id.partition(":")
            register(client.metadata_store, client.znodes, BookieAddress(bookie_id, host, int(port)), read_only=True)
        yield MadeCluster(local, client, size)
