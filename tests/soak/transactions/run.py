"""One run: writers of transactions over three logs are killed, while readers, tails and vacuums look at all of them."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pyarrow as pa

from bk_spark import BookKeeper, Retention
from bk_spark.errors import BookKeeperError, ConfigError
from tests.checkout import ROOT
from tests.soak.transactions.rows import LOGS, Name, counted, logs_of, row_count

WRITERS = 3
CALLS = 120
"""Of a writer until it dies: some transactions."""
KEPT_VERSIONS_S = 20
MOST = 10**9


@dataclass
class Outcome:
    counts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


class Run:
    def __init__(self, uri: str, seed: int) -> None:
        self._uri = uri
        self._chance = random.Random(seed)
        self._outcome = Outcome()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._told: dict[str, int] = {f"writer-{number}": -1 for number in range(WRITERS)}
        """The last transaction that each writer said to be committed."""
        self._tailed: dict[str, Counter[Name]] = {log: Counter() for log in LOGS}
        self._positions = dict.fromkeys(LOGS, "earliest")

    def play(self, kills: int) -> Outcome:
        with BookKeeper(self._uri) as client:
            for log in LOGS:
                client.append_rows(log, pa.table({"writer": ["-"], "number": [0]}), create=True)
                client.open_log(log).set_retention(Retention(version_retention_s=KEPT_VERSIONS_S))
            workers = [self._read_now, self._read_at, self._read_together, self._vacuum]
            threads = [threading.Thread(target=self._guarded, args=(one,)) for one in workers]
            threads += [threading.Thread(target=self._guarded, args=(self._tailing(log),)) for log in LOGS]
            for thread in threads:
                thread.start()
            try:
                writers = [threading.Thread(target=self._killed, args=(one, kills // WRITERS)) for one in self._told]
                for one in writers:
                    one.start()
                for one in writers:
                    one.join()
            finally:
                self._over.set()
                for thread in threads:
                    thread.join()
            self._check_end(client)
        return self._outcome

    # Who takes part

    def _killed(self, writer: str, kills: int) -> None:
        for _ in range(kills):
            with self._lock:
                call, again = self._chance.randint(1, CALLS), self._chance.randint(0, 1)
            if self._write(writer, max(0, self._told[writer] + 1 - again), call, MOST) != -9:
                return
            self._count("kills")

    def _write(self, writer: str, first: int, call: int, last: int) -> int:
        """Transactions from ``first`` on, which may be one that is committed. Its exit code."""
        arguments = [sys.executable, "-m", "tests.soak.transactions.agent", self._uri, writer, str(first), str(call), str(last)]
        ended = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
        told = [int(line) for line in ended.stdout.split()]
        if told:
            self._told[writer] = max(self._told[writer], told[-1])
        if ended.returncode not in (0, -9):
            self._differs(f"a writer ended by itself ({ended.returncode}): {ended.stderr[-2000:]}")
        return ended.returncode

    def _read_now(self, client: BookKeeper) -> None:
        while not self._over.is_set():
            self._check_kept(client, client.versions_of(LOGS), "now")

    def _read_at(self, client: BookKeeper) -> None:
        times = [datetime.now(UTC)]
        while not self._over.wait(0.05):
            times = [*times[-200:], datetime.now(UTC)]
            with self._lock:
                at = self._chance.choice(times)
            try:
                versions = client.versions_of(LOGS, timestamp=at)
            except ConfigError as problem:
                self._count_not_kept(problem, "times")
                continue
            if all(versions.values()):
                self._check_kept(client, versions, "at a time")

    def _read_together(self, client: BookKeeper) -> None:
        """Log after log: a transaction has as many rows as logs that it changes."""
        while not self._over.is_set():
            found = counted(client.read_rows(LOGS))
            for (writer, number), count in found.items():
                if writer != "-" and count != row_count(number) * len(logs_of(number)):
                    self._differs(f"all logs together have {count} rows of transaction {number} of {writer}")
            self._count("reads of all logs together")

    def _vacuum(self, client: BookKeeper) -> None:
        while not self._over.wait(2):
            for log in LOGS:
                client.vacuum_log(log)
                self._count("vacuums")

    def _tailing(self, log: str) -> Callable[[BookKeeper], None]:
        def tail(client: BookKeeper) -> None:
            while not self._over.is_set():
                self._tail(client, log)

        return tail

    def _tail(self, client: BookKeeper, log: str) -> None:
        with client.open_log(log).tail_rows(self._positions[log], timeout_s=1.0) as tail:
            for batch in tail:
                self._tailed[log] += counted([batch])
                self._positions[log] = tail.position

    # What must hold

    def _check_kept(self, client: BookKeeper, versions: Mapping[str, int], what: str) -> None:
        try:
            self._check_versions(client, versions, what)
        except ConfigError as problem:  # a reader that waits for its turn for so long
            self._count_not_kept(problem, "versions")

    def _count_not_kept(self, problem: ConfigError, what: str) -> None:
        if "the oldest version of log" not in str(problem):
            raise problem
        self._count(f"{what} that are not kept")

    def _check_versions(self, client: BookKeeper, versions: Mapping[str, int], what: str) -> None:
        seen = {log: counted(client.open_log(log).read_rows(version=version)) for log, version in versions.items()}
        self._check_whole(seen, f"a reader {what} at versions {versions}")
        self._count(f"reads {what}")

    def _check_whole(self, seen: Mapping[str, Counter[Name]], who: str) -> None:
        for name in {name for found in seen.values() for name in found if name[0] != "-"}:
            counts = [seen[log][name] for log in logs_of(name[1])]
            if set(counts) != {row_count(name[1])} or sum(counts) != sum(found[name] for found in seen.values()):
                self._differs(f"{who} sees {counts} rows of transaction {name[1]} of {name[0]}")

    def _check_end(self, client: BookKeeper) -> None:
        for writer, last in self._told.items():
            self._write(writer, max(0, last), 0, last + 2)
        versions = client.versions_of(LOGS)
        seen = {log: counted(client.open_log(log).read_rows(version=version)) for log, version in versions.items()}
        self._check_whole(seen, "the last reader")
        for log in LOGS:
            self._tail(client, log)
            if self._tailed[log] != seen[log]:
                self._differs(f"the tail of {log} has other rows than the log")
            for writer, last in self._told.items():
                missing = [n for n in range(last + 1) if log in logs_of(n) and (writer, n) not in seen[log]]
                if missing:
                    self._differs(f"transactions {missing[:10]} of {writer} were told, and are not in {log}")
        self._outcome.counts["transactions"] = sum(last + 1 for last in self._told.values())

    def _guarded(self, work: Callable[[BookKeeper], None]) -> None:
        with BookKeeper(self._uri) as client:
            while not self._over.is_set():
                try:
                    work(client)
                except BookKeeperError as problem:
                    if not problem.retryable:
                        self._differs(f"{type(problem).__name__}: {problem}")
                        return
                except Exception as problem:
                    self._differs(f"{type(problem).__name__} {problem}")
                    return

    def _count(self, what: str) -> None:
        with self._lock:
            self._outcome.counts[what] += 1

    def _differs(self, what: str) -> None:
        with self._lock:
            self._outcome.differences.append(what)
