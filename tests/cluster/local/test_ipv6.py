"""A cluster whose ZooKeeper and bookies are found under IPv6 addresses."""

from __future__ import annotations

import json
import socket
import socketserver
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bk_spark import BookKeeper
from bk_spark.cli import main
from bk_spark.config import ClientConfig
from bk_spark.local.security import Authority
from bk_spark.local.zookeeper_server import LocalZooKeeper
from bk_spark.metadata.registration import RegisteredBookie
from bk_spark.metadata.uri import parse_uri


def has_ipv6() -> bool:
    with suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


pytestmark = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 on its loopback interface")


@contextmanager
def at_ipv6(port: int) -> Iterator[int]:
    """A port of ``::1`` behind which is that port of 127.0.0.1."""

    class Both(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(("127.0.0.1", port)) as other:
                back = threading.Thread(target=_copy, args=(other, self.request), daemon=True)
                back.start()
                _copy(self.request, other)
                back.join()

    class Server(socketserver.ThreadingTCPServer):
        address_family = socket.AF_INET6
        daemon_threads = True

    with Server(("::1", 0), Both) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def registered(client: BookKeeper) -> list[RegisteredBookie]:
    deadline = time.monotonic() + 60
    while not (found := client.list_bookies()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


@contextmanager
def bookie_at(host: str, uri: str, directory: Path, *more: str) -> Iterator[None]:
    words = ["--data-dir", str(directory), "--metadata", uri, "--host", host]
    assert main(["bookie", "format", *words]) == 0
    options = ["--http-port", "0", "--disk-usage-high", "0.99", "--disk-usage-low", "0.98", *more]
    with subprocess.Popen([sys.executable, "-m", "bk_spark.cli", "bookie", "start", *words, *options]) as process:
        try:
            yield
        finally:
            process.terminate()


@pytest.fixture
def root(metadata_uri: str) -> str:
    """Of a cluster without bookies."""
    assert main(["cluster", "init", "--metadata", metadata_uri]) == 0
    return parse_uri(metadata_uri)[1]


def test_a_bookie_listens_at_an_ipv6_address_and_is_used_there(
    zookeeper_server: LocalZooKeeper, root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With ZooKeeper at one, too, beside a server with a name that does not answer."""
    with at_ipv6(zookeeper_server.port) as port:
        uri = f"zk://[::1]:{port},127.0.0.1:{zookeeper_server.port}{root}"
        with bookie_at("[::1]", f"zk://[0::1]:{port}{root}", tmp_path / "bookie"), BookKeeper(uri) as client:
            [bookie] = registered(client)
            assert bookie.address.host == "::1"
            assert bookie.address.http is not None
            with urllib.request.urlopen(f"http://{bookie.address.http}/ready", timeout=10) as answer:
                assert answer.status == 200
            with client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1) as writer:
                writer.append(b"small, over the second port")
                writer.append(b"x" * 300_000)
            with client.open_ledger(writer.ledger_id) as reader:
                assert reader.last_add_confirmed == 1
            capsys.readouterr()
            assert main(["bookie", "list", "--json", "--metadata", uri]) == 0
            listed = json.loads(capsys.readouterr().out)
            assert (listed["address"], listed["answers"]) == (f"[::1]:{bookie.address.port}", True)


def test_with_tls_a_bookies_certificate_must_name_its_ipv6_address(root: str, metadata_uri: str, tmp_path: Path) -> None:
    authority = Authority("of a test")
    authority.save(tmp_path / "ca.pem")
    authority.issue(tmp_path / "good.pem", hosts=["0:0:0:0:0:0:0:1"])
    files = ("--tls-certificate", str(tmp_path / "good.pem"), "--tls-key", str(tmp_path / "good.key"))
    client = ClientConfig(tls_ca=str(tmp_path / "ca.pem"))
    with (
        bookie_at("::1", metadata_uri, tmp_path / "bookie", *files),
        BookKeeper(metadata_uri, client) as bookkeeper,
    ):
        assert registered(bookkeeper)
        with bookkeeper.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1) as writer:
            writer.append(b"small, over the second port")
            writer.append(b"x" * 300_000)
        with bookkeeper.open_ledger(writer.ledger_id) as reader:
            assert reader.last_add_confirmed == 1
