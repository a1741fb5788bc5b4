"""Apache's bookies and Apache's Java client, from Maven, beside a ZooKeeper of ours."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.bookkeeper_cluster import (
    BOOKIE,
    DB_STORAGE,
    JAVA_OPTIONS,
    POM,
    BookKeeperCluster,
    JavaPrograms,
    Peer,
    apache_bookies,
    bookkeeper_cluster,
    java_command,
)
from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.local.cluster import LocalCluster

IS_ALL = os.environ.get("BK_SPARK_INTEROP") == "1"
"""``make interop``: every combination. ``make test`` takes fewer."""

APACHE, OURS = "apache", "ours"
"""Whose bookies a test runs on."""

ON_BOTH = pytest.mark.parametrize("side", [APACHE, OURS], indirect=True, scope="session")

HERE = Path(__file__).resolve().parent

_SMALL = [option for option in JAVA_OPTIONS if not option.startswith("-X")]
JAVA = (*_SMALL, "-Xmx256m", "-XX:MaxDirectMemorySize=256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
SETTINGS = {
    **DB_STORAGE,
    "dbStorage_writeCacheMaxSizeMb": "32",
    "dbStorage_readAheadCacheMaxSizeMb": "32",
    "dbStorage_rocksDB_blockCacheSize": "16777216",
    "enableLocalTransport": "false",
    "maxPendingAddRequestsPerThread": "10000",
    "maxPendingReadRequestsPerThread": "10000",
    "autoRecoveryDaemonEnabled": "true",
}
"""A bookie that holds some megabytes needs no gigabyte. Its AutoRecovery runs, as with Pulsar. Requests that wait have Apache's
default bounds."""


class ApacheError(Exception):
    """What the Java client answered: a code of BKException."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(f"BKException {answer['error']}")
        self.code = int(answer["error"])
        self.confirmed = int(answer.get("confirmed", 0))
        """Of entries that were added: how many, from the first on, had been confirmed."""


class JavaClient:
    """Apache's client in a JVM of its own; its commands are in ApacheClient.java."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def create(self, e: int, w: int, a: int, digest: str = "CRC32C", password: str = "") -> int:
        return int(self._ask("create", e, w, a, digest, password or "-")["ledger"])

    def add(self, ledger_id: int, count: int, size: int) -> dict[str, Any]:
        return self._ask("add", ledger_id, count, size)

    def close_ledger(self, ledger_id: int) -> dict[str, Any]:
        return self._ask("close", ledger_id)

    def open(self, ledger_id: int, digest: str = "CRC32C", password: str = "", *, recover: bool = True) -> dict[str, Any]:
        return self._ask("open", ledger_id, digest, password or "-", "recover" if recover else "read")

    def read(self, ledger_id: int, first: int, last: int) -> dict[str, Any]:
        return self._ask("read", ledger_id, first, last)

    def explicit_last_add_confirmed(self, ledger_id: int) -> int:
        return int(self._ask("explicit", ledger_id)["last"])

    def _ask(self, *command: object) -> dict[str, Any]:
        answer = self._peer.ask(*command)
        if "error" in answer:
            raise ApacheError(answer)
        return answer


@dataclass(frozen=True)
class Kind:
    """How a cluster of Apache's bookies differs from the others."""

    settings: Mapping[str, str] = field(default_factory=dict)
    java: Sequence[str] = ()
    pom: Path = POM
    bookies: int = 3


@contextmanager
def apache_cluster(ours: LocalCluster, directory: Path, kind: Kind | None = None) -> Iterator[BookKeeperCluster]:
    """Three bookies by default. Raises SkippedError where the jars are not to be had."""
    kind = kind or Kind()
    settings, java = {**SETTINGS, **kind.settings}, (*JAVA, *kind.java)
    with bookkeeper_cluster(ours, directory, settings, java, pom=kind.pom, bookies=kind.bookies) as cluster:
        yield cluster


@contextmanager
def apache_beside(
    ours: LocalCluster, directory: Path, count: int, settings: Mapping[str, str], program: str = BOOKIE
) -> Iterator[BookKeeperCluster]:
    """Apache's bookies (or another ``program``) in the cluster of our bookies, not started yet, without AutoRecovery unless the
    settings say so.

    Raises SkippedError where the jars are not to be had.
    """
    metadata_uri = ours.metadata_uri.replace("zk://", "zk+hierarchical://")
    java, settings = java_command(JAVA), {**SETTINGS, "autoRecoveryDaemonEnabled": "false", **settings}
    with apache_bookies(metadata_uri, directory, settings, java, count, program) as bookies:
        yield BookKeeperCluster(bookies, metadata_uri, java, directory)


def uri(ours: LocalCluster, directory: Path) -> str:
    """The metadata URI of the cluster in ``directory`` for our client."""
    return f"zk://{ours.zookeeper.address}/{directory.name}"


@contextmanager
def java_client(programs: JavaPrograms, *, v2: bool, explicit_ms: int = 0) -> Iterator[JavaClient]:
    """``explicit_ms``: how often an idle writer tells how far it is confirmed; 0: never."""
    with programs.start(HERE / "ApacheClient.java", str(v2).lower(), str(explicit_ms)) as peer:
        yield JavaClient(peer)


def read_all(reader: ReadHandle) -> list[bytes]:
    """The payloads of all entries up to the last add confirmed."""
    if reader.last_add_confirmed < 0:
        return []
    return [one for batch in reader.read(0, reader.last_add_confirmed) for one in batch.column("payload").to_pylist()]


def payload(ledger_id: int, entry_id: int, size: int) -> bytes:
    """As ApacheClient.java's: ``size`` bytes; with -1 from 0 to 1,999, in a way that hardly repeats."""
    count = size if size >= 0 else entry_id * 7919 % 2000
    begin = ledger_id + 31 * entry_id
    return bytes((begin + i) & 0xFF for i in range(count))


def summary(payloads: Iterable[bytes]) -> dict[str, Any]:
    """What JavaClient.read says of entries with these payloads."""
    every = list(payloads)
    return {"count": len(every), "sha256": hashlib.sha256(b"".join(every)).hexdigest()}
