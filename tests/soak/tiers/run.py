"""One run: everybody works on one log while tierers are killed, and what anybody reads is held against a model.

Each append is one ledger of rows ``(append, number)``. So the content of a version follows from the commits up to it.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.catalog import load_catalog

from bk_spark import BookKeeper, LogPosition, Retention, Tier
from bk_spark.errors import BookKeeperError, ConfigError, NoSuchLedgerError
from bk_spark.log.log_handle import Log
from tests.checkout import ROOT
from tests.soak.tiers.rows import LOG, Row, read_rows

if TYPE_CHECKING:
    from tests.soak.tiers.spark import SparkReaders

ROWS = 40
"""Of the largest append."""
CALLS = 140
"""Of a tierer until it dies: some steps."""
KEPT_VERSIONS_S = 10
PATIENCE_S = 120.0


@dataclass
class Outcome:
    kills: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    told: dict[str, str] = field(default_factory=dict)
    """What a tierer told first of each kind of error."""
    differences: list[str] = field(default_factory=list)


class Run:
    """A log with a tier below ``folder``. ``spark`` makes Spark take part."""

    def __init__(self, uri: str, folder: Path, seed: int, spark: SparkReaders | None = None) -> None:
        self._spark = spark
        self._uri = uri
        self._folder = folder
        self._chance = random.Random(seed)
        self._outcome = Outcome()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._appended: dict[int, tuple[int, int]] = {}
        """Version → the name of its append, and how many rows it has."""
        self._tailed: list[Row] = []
        self._position = "earliest"

    def play(self, kills: int) -> Outcome:
        with BookKeeper(self._uri) as client:
            client.append_rows(LOG, _rows(1, 3), create=True)
            self._appended[1] = (1, 3)
            log = client.open_log(LOG)
            log.set_retention(Retention(version_retention_s=KEPT_VERSIONS_S))
            log.set_tier(Tier(f"file://{self._folder}/lake", "soak.fire", keep_on_bookies_s=0))
            workers = [self._append, self._read, self._tail, self._shorten, self._vacuum]
            workers += [self._stream, self._read_by_spark] if self._spark else []
            threads = [threading.Thread(target=self._guarded, args=(one,)) for one in workers]
            for thread in threads:
                thread.start()
            try:
                tierers = [threading.Thread(target=self._killed, args=(kills // 2,)) for _ in range(2)]
                for one in tierers:
                    one.start()
                for one in tierers:
                    one.join()
            finally:
                self._over.set()
                for thread in threads:
                    thread.join()
            self._check_end(client)
        return self._outcome

    # Who takes part

    def _killed(self, kills: int) -> None:
        for _ in range(kills):
            with self._lock:
                call = self._chance.randint(1, CALLS)
            arguments = [sys.executable, "-m", "tests.soak.tiers.agent", self._uri, LOG, str(call)]
            ended = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
            self._count("kills")
            self._outcome.kills += 1
            for line in ended.stdout.splitlines():
                self._count(f"tierers told: {line.split(':')[0]}")
                self._outcome.told.setdefault(line.split(":")[0], line)
            if ended.returncode != -9:
                self._differs(f"a tierer ended by itself ({ended.returncode}): {ended.stderr[-2000:]}")

    def _append(self, client: BookKeeper) -> None:
        log = client.open_log(LOG)
        while not self._over.is_set():
            rows = self._draw(1, ROWS)
            number = log.snapshot().version + 1
            version = log.append_rows(_rows(number, rows), application=("fire", number)).version
            with self._lock:
                self._appended[version] = (number, rows)
            self._count("appends")
            self._over.wait(0.1)

    def _shorten(self, client: BookKeeper) -> None:
        """Only what the tail has read, and the stream."""
        log = client.open_log(LOG)
        while not self._over.wait(3):
            read = min([len(self._tailed), *([self._spark.streamed_rows(client)] if self._spark else [])])
            rows = 0
            first_row = client.logs.names.head(LOG, log.uid).first_row
            for ledger in log.snapshot().ledgers:
                rows += ledger.rows
                if first_row + rows > read - 200:
                    log.truncate(LogPosition(ledger.ledger_id, 0))
                    self._count("truncations")
                    break

    def _vacuum(self, client: BookKeeper) -> None:
        while not self._over.wait(2):
            client.vacuum_log(LOG)
            self._count("vacuums")

    def _read(self, client: BookKeeper) -> None:
        log = client.open_log(LOG)
        while not self._over.is_set():
            versions = [one.version for one in log.versions()]
            with self._lock:
                version = self._chance.choice(versions)
            self._check_version(client, version, lambda version: read_rows(log.read_rows(version=version).read_all()))
            self._over.wait(0.05)

    def _read_by_spark(self, client: BookKeeper) -> None:
        assert self._spark is not None, "Spark takes part"
        log = client.open_log(LOG)
        while not self._over.wait(2):
            versions = [one.version for one in log.versions()]
            with self._lock:
                version = self._chance.choice(versions)
            self._check_version(client, version, self._spark.version)
            self._count("reads by Spark")

    def _stream(self, client: BookKeeper) -> None:
        """Its query is ended at a moment that nobody chose, and goes on from its checkpoint with other batches."""
        assert self._spark is not None, "Spark takes part"
        while not self._over.is_set():
            self._spark.stream_some(client, self._draw(5, 3 * ROWS), self._draw(1, 30) / 10, self._over)
            self._count("lives of the stream")

    def _tail(self, client: BookKeeper) -> None:
        log = client.open_log(LOG)
        while not self._over.is_set():
            self._read_tail(log)

    def _read_tail(self, log: Log) -> None:
        with log.tail_rows(self._position, timeout_s=1.0) as tail:
            for batch in tail:
                self._tailed += read_rows(pa.Table.from_batches([batch]))
                self._position = tail.position

    # What must hold

    def _check_version(self, client: BookKeeper, version: int, read: Callable[[int], list[Row]]) -> None:
        log = client.open_log(LOG)
        try:
            found = read(version)
        except (ConfigError, NoSuchLedgerError) as problem:
            if version >= client.logs.names.fresh_head(LOG, log.uid).oldest_version:
                self._differs(f"version {version} cannot be read, and the log keeps it: {problem}")
            return
        self._count("reads")
        expected = self._content(client, version)
        if expected is not None and found != expected:
            self._differs(f"version {version} has {len(found)} rows in place of {len(expected)}: {_first(found, expected)}")

    def _content(self, client: BookKeeper, version: int) -> list[Row] | None:
        """What a version must hold: the appends that it lists, in order. None where an append was not noted yet."""
        total = client.logs.reader.version(LOG, client.open_log(LOG).uid, version).total.rows
        rows: list[Row] = []
        with self._lock:
            for number in range(version, 0, -1):
                if len(rows) >= total:
                    break
                if number in self._appended:
                    rows = [*_numbers(*self._appended[number]), *rows]
        return rows if len(rows) == total else None

    def _check_end(self, client: BookKeeper) -> None:
        ended = subprocess.run(
            [sys.executable, "-m", "tests.soak.tiers.agent", self._uri, LOG, "0"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if ended.returncode or ended.stdout:
            self._differs(f"the last run failed ({ended.returncode}): {ended.stdout[-500:]} {ended.stderr[-2000:]}")
        log = client.open_log(LOG)
        for version in log.versions():
            self._check_version(client, version.version, lambda number: read_rows(log.read_rows(version=number).read_all()))
        newest = log.snapshot()
        expected = self._content(client, newest.version)
        self._compare("the table", self._table(), expected)
        self._read_tail(log)
        every = [row for version in sorted(self._appended) for row in _numbers(*self._appended[version])]
        self._compare("the tail", self._tailed, every)
        if self._spark:
            self._compare("the log that the stream writes", self._spark.finished(client), every)
        left = client.existing_ledgers([one.ledger_id for one in newest.ledgers])
        if left:
            self._differs(f"{len(left)} ledgers are on bookies, and none should be")
        self._outcome.counts["rows"] = len(every)

    def _table(self) -> list[Row]:
        catalog = load_catalog("default", type="sql", uri=f"sqlite:///{self._folder}/lake/_catalog.db")
        table = catalog.load_table("soak.fire")
        self._outcome.counts["snapshots"] = len(table.metadata.snapshots)
        places = [(name, "ascending") for name in ("_ledger_id", "_entry_id", "_row")]
        return read_rows(table.scan().to_arrow().sort_by(places))

    def _compare(self, what: str, found: list[Row], expected: list[Row] | None) -> None:
        if found != expected:
            self._differs(f"{what} has {len(found)} rows in place of {len(expected or ())}: {_first(found, expected or [])}")

    # Helpers

    def _guarded(self, work: Callable[[BookKeeper], None]) -> None:
        until = time.monotonic() + PATIENCE_S
        with BookKeeper(self._uri) as client:
            while not self._over.is_set():
                try:
                    work(client)
                except BookKeeperError as problem:
                    self._count(f"{work.__name__} told: {type(problem).__name__}")
                    if not problem.retryable and time.monotonic() > until:
                        self._differs(f"{work.__name__}: {problem}")
                        return
                except Exception as problem:
                    self._differs(f"{work.__name__}: {type(problem).__name__} {str(problem)[:3000]}")
                    return

    def _draw(self, low: int, high: int) -> int:
        with self._lock:
            return self._chance.randint(low, high)

    def _count(self, what: str) -> None:
        with self._lock:
            self._outcome.counts[what] += 1

    def _differs(self, what: str) -> None:
        with self._lock:
            self._outcome.differences.append(what)


def _rows(append: int, count: int) -> pa.Table:
    return pa.table({"append": pa.array([append] * count, pa.int64()), "number": pa.array(range(count), pa.int64())})


def _numbers(append: int, count: int) -> list[Row]:
    return [(append, number) for number in range(count)]


def _first(found: list[Row], expected: list[Row]) -> str:
    place = next((n for n, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]), "the end")
    return f"they differ from row {place} on"
