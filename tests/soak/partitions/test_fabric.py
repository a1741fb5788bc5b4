"""Real sockets in two network namespaces, and faults between them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bk_spark.local.process import Keeper
from tests.soak.partitions.fabric import HOME, Fabric, Node, problem
from tests.soak.partitions.link import Link, Pair, between

pytestmark = pytest.mark.skipif(bool(problem()), reason=problem())

FAR = "far"
THERE, BACK = (HOME, FAR), (FAR, HOME)
QUICK_S, LONG_S = 0.5, 30.0

ECHO = """\
import socket, sys, threading
def echo(connection):
    while data := connection.recv(65536):
        connection.sendall(data)
    connection.close()
with socket.create_server((sys.argv[1], 7)) as server:
    print("ready", flush=True)
    while True:
        threading.Thread(target=echo, args=server.accept()[:1], daemon=True).start()
"""


@dataclass(frozen=True)
class Network:
    fabric: Fabric
    node: Node

    def connect(self, timeout_s: float = LONG_S) -> socket.socket:
        return socket.create_connection((self.node.address, 7), timeout=timeout_s)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """A node that sends back whatever it is sent on port 7."""
    directory = tmp_path_factory.mktemp("fabric")
    with Keeper(directory, temporary=False) as keeper, Fabric(keeper, directory, seed=1) as fabric:
        node = fabric.add(FAR)
        command = [*node.prefix, sys.executable, "-c", ECHO, node.address]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as echo:
            assert echo.stdout is not None
            assert echo.stdout.readline() == b"ready\n"
            yield Network(fabric, node)
            echo.kill()


@pytest.fixture(autouse=True)
def whole(network: Network) -> Iterator[None]:
    yield
    network.fabric.set({})


def returned(connection: socket.socket, data: bytes) -> bytes:
    """What comes back of it."""
    sender = threading.Thread(target=connection.sendall, args=(data,))
    sender.start()
    found = bytearray()
    while len(found) < len(data) and (part := connection.recv(1 << 20)):
        found += part
    sender.join()
    return bytes(found)


def test_a_whole_network_carries_megabytes(network: Network) -> None:
    data = os.urandom(4_000_000)
    with network.connect() as connection:
        assert returned(connection, data) == data


@pytest.mark.parametrize("cut", [[THERE], [BACK], [THERE, BACK]], ids=["there", "back", "both"])
def test_a_cut_in_any_direction_keeps_connections_from_being_made_and_healing_lets_them(
    network: Network, cut: list[Pair]
) -> None:
    network.fabric.set(dict.fromkeys(cut, Link(is_cut=True)))
    with pytest.raises(TimeoutError):
        network.connect(QUICK_S)
    network.fabric.set({})
    network.connect().close()


def test_a_connection_outlives_a_cut_that_is_short(network: Network) -> None:
    with network.connect() as connection:
        network.fabric.set(dict.fromkeys(between([HOME], [FAR]), Link(is_cut=True)))
        connection.sendall(b"held")
        connection.settimeout(QUICK_S)
        with pytest.raises(TimeoutError):
            connection.recv(4)
        network.fabric.set({})
        connection.settimeout(LONG_S)
        assert connection.recv(4) == b"held"


def test_a_reset_ends_connections_and_refuses_new_ones_at_once(network: Network) -> None:
    with network.connect() as connection:
        network.fabric.set({THERE: Link(is_reset=True)})
        connection.sendall(b"data")
        with pytest.raises(ConnectionResetError):
            connection.recv(4)
        with pytest.raises(ConnectionRefusedError):
            network.connect()


def test_a_link_that_loses_doubles_and_reorders_packets_still_carries_every_byte_in_order(network: Network) -> None:
    bad = Link(loss=0.02, duplication=0.2, jitter_ms=2)
    network.fabric.set({THERE: bad, BACK: bad})
    data, before = os.urandom(1_000_000), network.fabric.counts()
    with network.connect() as connection:
        assert returned(connection, data) == data
    counts = network.fabric.counts() - before
    assert min(counts["lost"], counts["duplicated"], counts["delayed"]) > 0, counts


def test_a_delayed_link_takes_its_delay_in_both_directions(network: Network) -> None:
    network.fabric.set({THERE: Link(delay_ms=50), BACK: Link(delay_ms=70)})
    with network.connect() as connection:
        began = time.monotonic()
        assert returned(connection, b"x") == b"x"
        assert time.monotonic() - began >= 0.12


def test_the_end_of_the_fabric_leaves_no_namespace_and_no_device(tmp_path: Path) -> None:
    with Keeper(tmp_path, temporary=False) as keeper, Fabric(keeper, tmp_path, seed=1) as fabric:
        # Beside the other fabric: a device's name says whose it is.
        node = fabric.add(FAR)
        holder = int(node.prefix[1].split("/")[2])
        devices = set(os.listdir("/sys/class/net"))
    assert not Path(f"/proc/{holder}").exists()
    assert len(devices - set(os.listdir("/sys/class/net"))) == 1
