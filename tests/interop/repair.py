"""A cluster of our bookies and Apache's, with known ledgers of both clients; when it is whole, and a check."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.peers.bookkeeper_cluster import BookKeeperCluster
from bk_spark.bookkeeper import BookKeeper
from bk_spark.local.cluster import DEFAULT_BOOKIE_CONFIG, LocalAutoRecovery, LocalCluster
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.replication.auditor_znodes import candidates, current_auditor
from bk_spark.replication.ledger_check import LedgerCheck
from bk_spark.replication.settings import AutoRecoveryConfig
from tests.interop.apache import JavaClient, apache_beside, java_client, payload, read_all, summary

SESSION_S = 4.0
"""After this long a killed bookie of either kind is seen to be gone."""

GRACE_S = 1.0

OUR_SETTINGS = AutoRecoveryConfig(lost_bookie_grace_s=GRACE_S, open_fragment_grace_s=GRACE_S, retry_s=GRACE_S)

THEIR_SETTINGS: Mapping[str, str] = {
    "zkTimeout": f"{1000 * SESSION_S:.0f}",
    "openLedgerRereplicationGracePeriod": f"{1000 * GRACE_S:.0f}",
    "lockReleaseOfFailedLedgerGracePeriod": "3200",
    "rwRereplicateBackoffMs": "200",
    "lostBookieRecoveryDelay": "0",
}
"""Pauses of seconds where Apache's defaults are half a minute and more; a lost bookie is not waited for, as by default."""

WHOLE_S = 180.0
"""For the repair of every ledger that a lost bookie had."""

DIGESTS = ["CRC32C", "CRC32", "HMAC", "DUMMY"]
SHAPES = [(3, 3, 2), (3, 2, 2)]
COUNT = 60
PASSWORD = "secret"


@dataclass(frozen=True)
class Written:
    ledger_id: int
    digest: str
    payloads: tuple[bytes, ...]
    """Of all entries: each was confirmed."""


class MixedCluster:
    """Three bookies of ours to begin with, Apache's beside them, and clients of both."""

    def __init__(self, ours: LocalCluster, apache: BookKeeperCluster, java: JavaClient, java_3: JavaClient, client: BookKeeper):
        self.ours = ours
        self.apache = apache
        self.client = client
        self.marks = UnderReplication(client.metadata_store, client.znodes)
        self.written: list[Written] = []
        self.recoveries: list[LocalAutoRecovery] = []
        """Our AutoRecovery processes, as far as ``in_office`` is to know them."""
        self._writers: list[Callable[[tuple[int, int, int], str, int, bool], Written]] = [
            lambda *what: self._write_with_java(java, *what),
            lambda *what: self._write_with_java(java_3, *what),
            self._write_singly,
            self._write_batch,
        ]
        self._java = java, java_3

    def write(self) -> None:
        """Ledgers of every writer, digest and shape, closed, open and empty."""
        for write, shape, digest in itertools.product(self._writers, SHAPES, DIGESTS):
            self.written.append(write(shape, digest, COUNT, True))
        endings = itertools.product(self._writers, SHAPES, [(COUNT, False), (1, False), (0, False), (0, True)])
        for (write, shape, (count, closes)), digest in zip(endings, itertools.cycle(DIGESTS)):
            self.written.append(write(shape, digest, count, closes))

    def add_ours(self) -> str:
        return self.ours.add_bookie().bookie_id

    def start_apache(self, number: int = 0) -> str:
        """Start one of Apache's bookies, and wait until clients know it."""
        bookie = self.apache.bookies[number]
        bookie.start()
        eventually(lambda: bookie.bookie_id in self.registered(), f"{bookie.bookie_id} is registered")
        return bookie.bookie_id

    def registered(self) -> set[str]:
        return {one.bookie_id for one in self.client.list_bookies()}

    def naming(self, bookie_id: str) -> list[int]:
        """The ledgers whose metadata name the bookie."""
        listed = self.client.existing_ledgers(list(self.client.list_ledgers()))
        return [one.ledger_id for one in listed if bookie_id in one.bookies]

    def auditor(self) -> str | None:
        return current_auditor(self.client.metadata_store, self.client.znodes)

    def candidates(self) -> list[str]:
        return candidates(self.client.metadata_store, self.client.znodes)

    def in_office(self) -> list[str]:
        """Who lives and says in its log that it is the auditor: of Apache's bookies and our AutoRecovery processes."""
        told = [(one, one.bookie_id, "starting as Auditor Bookie", "Shutting down auditor") for one in self.apache.bookies]
        told += [(one, one.name, f"{one.name} is the auditor", "is not the auditor any more") for one in self.recoveries]
        return [name for process, name, begin, end in told if process.pid is not None and _is_last(process.log, begin, end)]

    def check_office(self) -> None:
        assert len(self.in_office()) <= 1, f"{self.in_office()} are auditors at the same time"

    def await_whole(self, lost: str, look: Callable[[], None] = lambda: None) -> None:
        """Until no ledger names the lost bookie, none is marked and none is locked. ``look`` is called meanwhile."""

        def is_whole() -> bool:
            look()
            return self.marks.count() == 0 and not self.marks.locks() and not self.naming(lost)

        def what() -> str:
            marked = [one.ledger_id for one in self.marks.marks()]
            return f"{lost} replaced: ledgers {self.naming(lost)} name it, {marked} are marked, locks {self.marks.locks()}"

        eventually(is_whole, what, WHOLE_S)

    def check(self) -> None:
        """All replicas are where live bookies have them, and both clients read every ledger whole.

        Open ledgers, which no bookie that died had, are recovered by one client or the other.
        """
        live, problems = self.registered(), list[str]()
        for one in self.written:
            try:
                self._check(one, live)
            except Exception as problem:
                problems.append(f"ledger {one.ledger_id} ({one.digest}, {len(one.payloads)} entries): {problem!r}")
        assert not problems, "\n".join(problems)

    def _check(self, one: Written, live: set[str]) -> None:
        metadata = self.client.ledger_metadata(one.ledger_id)
        assert metadata.bookies <= live, f"its bookies are {metadata.bookies}, and {live} are there"
        if one.ledger_id % 2:
            self._java[0].open(one.ledger_id, one.digest, PASSWORD)
        with self.client.open_ledger(one.ledger_id, PASSWORD.encode()) as reader:
            assert read_all(reader) == list(one.payloads)
        check = LedgerCheck(self.client.context, AutoRecoveryConfig(ledger_check_bytes_per_s=1 << 40))
        found = self.client.context.submit(check.check(one.ledger_id)).result()
        assert not found.lacking, f"lacking {found.lacking}"
        assert not found.unknown, f"unknown {found.unknown}"
        for java in self._java:
            opened = java.open(one.ledger_id, one.digest, PASSWORD, recover=False)
            assert opened["last"] == len(one.payloads) - 1, opened
            if one.payloads:
                assert java.read(one.ledger_id, 0, len(one.payloads) - 1) == summary(one.payloads)

    def _write_with_java(self, java: JavaClient, shape: tuple[int, int, int], digest: str, count: int, closes: bool) -> Written:
        ledger_id = java.create(*shape, digest, PASSWORD)
        if count:
            java.add(ledger_id, count, -1)
        if closes:
            java.close_ledger(ledger_id)
        return Written(ledger_id, digest, tuple(payload(ledger_id, one, -1) for one in range(count)))

    def _write_singly(self, shape: tuple[int, int, int], digest: str, count: int, closes: bool) -> Written:
        return self._write(shape, digest, count, closes, is_batch=False)

    def _write_batch(self, shape: tuple[int, int, int], digest: str, count: int, closes: bool) -> Written:
        return self._write(shape, digest, count, closes, is_batch=True)

    def _write(self, shape: tuple[int, int, int], digest: str, count: int, closes: bool, *, is_batch: bool) -> Written:
        writer = self.client.create_ledger(*shape, digest, PASSWORD.encode())
        payloads = [payload(writer.ledger_id, one, -1) for one in range(count)]
        if is_batch and payloads:
            writer.append_batch(payloads)
        elif payloads:
            for added in [writer.append_async(one) for one in payloads]:
                added.result()
        if closes:
            writer.close()
        return Written(writer.ledger_id, digest, tuple(payloads))


@contextmanager
def mixed_cluster(directory: Path, apache: int, settings: Mapping[str, str] | None = None) -> Iterator[MixedCluster]:
    """``apache`` of Apache's bookies, with these settings besides. Raises SkippedError where the jars are not to be had."""
    config = replace(DEFAULT_BOOKIE_CONFIG, session_timeout_s=SESSION_S)
    with (
        LocalCluster(3, directory / "ours", bookie_config=config) as ours,
        apache_beside(ours, directory / "apache", apache, {**THEIR_SETTINGS, **(settings or {})}) as theirs,
        java_client(theirs.programs, v2=True) as java,
        java_client(theirs.programs, v2=False) as java_3,
        BookKeeper(ours.metadata_uri) as client,
    ):
        yield MixedCluster(ours, theirs, java, java_3, client)


def _is_last(log: Path, begin: str, end: str) -> bool:
    """Whether ``begin`` was logged, and ``end`` not since."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return text.rfind(begin) > text.rfind(end)


def eventually(is_so: Callable[[], bool], what: str | Callable[[], str], deadline_s: float = 60.0) -> None:
    """Wait for a condition; fails with ``what`` should have been when the deadline passes."""
    deadline = time.monotonic() + deadline_s
    while not is_so():
        assert time.monotonic() < deadline, f"not within {deadline_s:g} s: {what if isinstance(what, str) else what()}"
        time.sleep(0.2)
