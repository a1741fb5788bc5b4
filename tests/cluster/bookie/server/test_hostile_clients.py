"""While clients mean harm, those that do not are served, and the bookie's memory stays below its bound.

``BK_SPARK_HOSTILE=200`` is how many connections each attack has (12 without it), each for ``BK_SPARK_HOSTILE_S`` seconds.

Ref: docs/guide/limits.md; docs/rules.md, protocol rules 34 and 41; situation 74.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bk_spark import BookKeeper
from bk_spark.config import MIB, BookieConfig, ClientConfig
from bk_spark.local.cluster import LocalBookie, LocalCluster
from bk_spark.metadata.registration import lookup
from tests.checkout import ROOT
from tests.cluster.bookie.asked_bookie import allow_any_id
from tests.cluster.bookie.hostile_apache_clients import ATTACKS as APACHE_ATTACKS
from tests.cluster.bookie.hostile_clients import ATTACKS

CONNECTIONS = int(os.environ.get("BK_SPARK_HOSTILE", "12"))
SECONDS = float(os.environ.get("BK_SPARK_HOSTILE_S", "0.3"))
QUORUMS = (1, 1, 1)
LIMIT_BYTES = 512 * MIB
OVERSHOOT_BYTES = 384 * MIB
"""What comes between two looks at the memory, and what the C library has not given back yet."""


@pytest.fixture(scope="module")
def attacked() -> Iterator[LocalCluster]:
    config = BookieConfig(disk_usage_high=0.99, disk_usage_low=0.98, memory_limit_bytes=LIMIT_BYTES)
    with LocalCluster(bookies=1, bookie_config=config) as cluster:
        allow_any_id(cluster, 1 << 45)
        yield cluster


@pytest.fixture(scope="module")
def client(attacked: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(attacked.metadata_uri) as client:
        yield client


@pytest.fixture(scope="module")
def patient(attacked: LocalCluster) -> Iterator[BookKeeper]:
    """gRPC accepts calls in the order in which they came. On a slow machine a call that comes after the first few thousand of
    an attack waits for longer than a read does by default."""
    with BookKeeper(attacked.metadata_uri, ClientConfig(read_timeout_s=20.0)) as client:
        yield client


@pytest.fixture(scope="module")
def large_ledger(client: BookKeeper) -> int:
    """16 MiB in entries of 1 MiB."""
    with client.create_ledger(*QUORUMS) as writer:
        for _ in range(16):
            writer.append(os.urandom(MIB))
        return writer.ledger_id


@contextmanager
def attack(name: str, port: int, cluster: LocalCluster, ledger_id: int, clients: str = "hostile_clients") -> Iterator[None]:
    arguments = (name, str(port), cluster.bookies[0].bookie_id, str(ledger_id), str(CONNECTIONS))
    command = [sys.executable, "-m", f"tests.cluster.bookie.{clients}", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"attacking\n"
            yield
        finally:
            process.kill()


class MemoryWatch:
    """The most memory that a process has had meanwhile."""

    def __init__(self, bookie: LocalBookie) -> None:
        self._statm = Path(f"/proc/{bookie.pid}/statm")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.most_bytes = 0

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.02):
            self.most_bytes = max(self.most_bytes, 4096 * int(self._statm.read_text().split()[1]))


def live(client: BookKeeper, seconds: float) -> int:
    """Add, read, and fence what another writer left open, until the time is up; how often."""
    until = time.monotonic() + seconds
    for done in itertools.count(1):
        writer = client.create_ledger(*QUORUMS)
        assert [writer.append(b"entry %d" % one) for one in range(3)] == [0, 1, 2]
        with client.open_ledger(writer.ledger_id) as reader:
            assert reader.is_closed
            assert [p.as_py() for b in reader.read(0, 2) for p in b.column("payload")] == [b"entry 0", b"entry 1", b"entry 2"]
        if time.monotonic() > until:
            return done
    raise AssertionError


@pytest.mark.parametrize("name", ATTACKS)
def test_a_client_is_served_while_hostile_ones_take_what_they_can(
    name: str, attacked: LocalCluster, client: BookKeeper, patient: BookKeeper, large_ledger: int
) -> None:
    port = int(attacked.bookies[0].address.rpartition(":")[2])
    began = time.monotonic()
    with MemoryWatch(attacked.bookies[0]) as memory, attack(name, port, attacked, large_ledger):
        done = live(patient if name == "ranges" else client, SECONDS)
    print(f"{name}: {done} rounds in {time.monotonic() - began:.1f} s, {memory.most_bytes >> 20} MiB at most")
    assert memory.most_bytes < LIMIT_BYTES + OVERSHOOT_BYTES


@pytest.mark.parametrize("name", APACHE_ATTACKS)
def test_a_client_is_served_while_hostile_ones_of_apaches_wire_take_what_they_can(
    name: str, attacked: LocalCluster, client: BookKeeper, large_ledger: int
) -> None:
    address = lookup(client.metadata_store, client.znodes, attacked.bookies[0].bookie_id)
    assert address is not None
    assert address.apache is not None
    began = time.monotonic()
    with (
        MemoryWatch(attacked.bookies[0]) as memory,
        attack(name, address.apache.port, attacked, large_ledger, "hostile_apache_clients"),
    ):
        done = live(client, SECONDS)
    print(f"{name}: {done} rounds in {time.monotonic() - began:.1f} s, {memory.most_bytes >> 20} MiB at most")
    assert memory.most_bytes < LIMIT_BYTES + OVERSHOOT_BYTES
