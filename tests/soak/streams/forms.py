"""The two forms of a run: a long one on a Spark cluster, and one that is short enough for every test run."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from bk_spark.local.cluster import LocalCluster
from tests.interop.apache import Kind, apache_cluster, uri
from tests.soak.chaos.faults import Bookie
from tests.soak.standalone.standalone import StandaloneSpark
from tests.soak.streams.checker import Source
from tests.soak.streams.driver import COPY, PRODUCE
from tests.soak.streams.plan import BOOKIE, DRIVER, EXECUTOR, READER, TAILER, WORKER
from tests.soak.streams.processes import MARK


@dataclass(frozen=True, slots=True)
class Store:
    """Where the logs are."""

    metadata_uri: str
    bookies: Sequence[Bookie]


@dataclass(frozen=True, slots=True)
class Form:
    """How large a run is."""

    bookies: int
    drivers: tuple[tuple[str, ...], ...]
    """The queries of each driver process."""
    victims: tuple[str, ...]
    source: Source
    trigger_ms: int

    @contextlib.contextmanager
    def store(self, directory: Path, *, apache: bool) -> Iterator[Store]:
        """A cluster of its own, of our bookies or of Apache's. Raises SkippedError where Apache's are not to be had."""
        if not apache:
            with LocalCluster(self.bookies, directory) as ours:
                yield Store(ours.metadata_uri, ours.bookies)
            return
        kind, theirs = Kind(bookies=self.bookies), directory.with_name("apache")
        with LocalCluster(0, directory) as ours, apache_cluster(ours, theirs, kind) as cluster:
            yield Store(uri(ours, theirs), cluster.bookies)

    @contextlib.contextmanager
    def spark(self, directory: Path) -> Iterator[SparkMaster]:
        """Where drivers run their tasks: on a standalone cluster if executors are to be killed, else in themselves."""
        mark = uuid.uuid4().hex
        if EXECUTOR not in self.victims:
            yield SparkMaster("local[2,4]", mark)
            return
        directory.mkdir()
        with mock.patch.dict(os.environ, {MARK: mark}):
            cluster = StandaloneSpark(directory, cores=2)
        with contextlib.closing(cluster):
            yield SparkMaster(cluster.url, mark)


@dataclass(frozen=True, slots=True)
class SparkMaster:
    """``mark`` is carried by all of its processes, and by all drivers: see ``processes.py``."""

    url: str
    mark: str


SHORT = Form(4, ((PRODUCE, COPY),), (DRIVER, BOOKIE, TAILER, WORKER, READER), Source(60, 3, 1_000_000, 1000), 300)
LONG = Form(5, ((PRODUCE,), (COPY,)), (DRIVER, EXECUTOR, BOOKIE, TAILER, WORKER, READER), Source(240, 4, 1_000_000, 1000), 1000)
