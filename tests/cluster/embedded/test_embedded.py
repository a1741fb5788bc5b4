"""``embedded:DIR``, by processes that start, share and end the cluster as users' programs do."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from bk_spark import BookKeeper, ConfigError
from bk_spark.embedded import host, join
from bk_spark.errors import ProcessFailedError
from bk_spark.local.cluster import LocalCluster

DEADLINE_S = 60.0

USER = """\
import sys
from bk_spark import BookKeeper
with BookKeeper("embedded:" + sys.argv[1]) as bookkeeper:
    if len(sys.argv) > 2:
        with bookkeeper.create_ledger() as writer:
            writer.append(sys.argv[2].encode())
    for ledger_id in [] if len(sys.argv) > 2 else bookkeeper.list_ledgers():
        with bookkeeper.open_ledger(ledger_id) as reader:
            for batch in reader.read(0, 0):
                print(*(payload.decode() for payload in batch.column("payload").to_pylist()), flush=True)
    print("done", flush=True)
    sys.stdin.read()
"""


class User:
    """A program that uses the cluster until its input ends."""

    def __init__(self, directory: Path, *words: str) -> None:
        command = [sys.executable, "-c", USER, str(directory), *words]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None

    def said(self) -> list[str]:
        """What it printed, once it has done its work."""
        assert self.process.stdout is not None
        lines: list[str] = []
        for line in self.process.stdout:
            if line == "done\n":
                return lines
            lines.append(line.strip())
        raise AssertionError(f"the user ended: {lines}")

    def end(self) -> None:
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        self.process.wait(60)


@pytest.fixture
def start_user(tmp_path: Path) -> Iterator[Callable[..., User]]:
    users: list[User] = []

    def start(*words: str) -> User:
        users.append(User(tmp_path / "data", *words))
        return users[-1]

    yield start
    for user in users:
        user.end()
    wait_until(lambda: not processes_in(tmp_path / "data"))


def processes_in(directory: Path) -> list[int]:
    """The processes whose command line names the directory, but for users."""
    found = []
    for name in os.listdir("/proc"):
        try:
            words = Path("/proc", name, "cmdline").read_bytes().decode().split("\0") if name.isdigit() else []
        except OSError:
            continue
        if any(str(directory) in word for word in words) and USER not in words:
            found.append(int(name))
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def host_pid(directory: Path) -> int:
    """Of the one host, once others that began with it have found it and ended."""
    wait_until(lambda: len(hosts_of(directory)) == 1)
    return hosts_of(directory)[0]


def hosts_of(directory: Path) -> list[int]:
    found = []
    for pid in processes_in(directory):
        with suppress(OSError):
            found += [pid] if b"bk_spark.embedded.host" in Path(f"/proc/{pid}/cmdline").read_bytes() else []
    return found


def test_data_stays_after_the_last_user_and_is_served_to_the_next(start_user: Callable[..., User], tmp_path: Path) -> None:
    first = start_user("apple")
    first.said()
    first.end()
    wait_until(lambda: not processes_in(tmp_path / "data"))
    assert start_user().said() == ["apple"]


def test_processes_that_begin_at_the_same_moment_share_one_cluster(start_user: Callable[..., User], tmp_path: Path) -> None:
    users = [start_user(word) for word in ("apple", "pear", "plum")]
    for user in users:
        user.said()
    assert host_pid(tmp_path / "data")
    assert sorted(start_user().said()) == ["apple", "pear", "plum"]


def test_a_killed_user_keeps_nothing_running(start_user: Callable[..., User], tmp_path: Path) -> None:
    user = start_user("apple")
    user.said()
    user.process.kill()
    wait_until(lambda: not processes_in(tmp_path / "data"))


def test_the_cluster_serves_as_long_as_one_user_is_left(start_user: Callable[..., User], tmp_path: Path) -> None:
    first = start_user("apple")
    first.said()
    assert start_user().said() == ["apple"]
    serving = host_pid(tmp_path / "data")
    first.end()
    third = start_user("pear")
    third.said()
    assert host_pid(tmp_path / "data") == serving


def test_a_process_that_a_user_named_is_one_until_it_ends() -> None:
    """Spark's Python processes end long before its JVM does."""
    with socket.create_server(("127.0.0.1", 0)) as listener, subprocess.Popen(["sleep", "600"]) as named:
        users = host.Users(listener, b"greeting\n", repair=lambda: None)

        def seen() -> host.Users:
            users.look()
            return users

        with socket.create_connection(listener.getsockname()) as user:
            wait_until(lambda: bool(seen()))
            user.sendall(f"{named.pid}\n12345678901234567890\nnonsense\n".encode())
            wait_until(lambda: bool(seen().processes))
        wait_until(lambda: not seen().connections)
        assert users
        named.kill()
        wait_until(lambda: not seen())


def test_after_a_killed_host_the_next_use_starts_another_one(start_user: Callable[..., User], tmp_path: Path) -> None:
    start_user("apple").said()
    os.kill(host_pid(tmp_path / "data"), signal.SIGKILL)
    start_user("pear").said()
    assert sorted(start_user().said()) == ["apple", "pear"]


@pytest.mark.parametrize("rest", [0, 1], ids=["ZooKeeper and every bookie", "one of them"])
def test_what_was_killed_of_the_cluster_serves_again_to_the_next_user(
    start_user: Callable[..., User], tmp_path: Path, rest: int
) -> None:
    start_user("apple").said()
    directory = tmp_path / "data"
    serving = host_pid(directory)
    victims = [pid for pid in processes_in(directory) if pid != serving]
    assert len(victims) == 4
    for pid in victims[:1] if rest else victims:
        os.kill(pid, signal.SIGKILL)
    start_user("pear").said()
    assert sorted(start_user().said()) == ["apple", "pear"]
    assert host_pid(directory) == serving
    assert len(processes_in(directory)) == 5


def test_a_cluster_that_cannot_be_mended_is_tried_again_after_a_pause(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        tries = 0

        def restart_ended(self) -> None:
            self.tries += 1
            raise ProcessFailedError("bookie-1", "ended with exit status 1 before it was ready", "a.log", "no space")

    broken = Broken()
    repair = host.Repair(cast("LocalCluster", broken))
    for _ in range(3):
        repair()
    assert broken.tries == 1
    assert "bookie-1" in capsys.readouterr().out
    later_s = time.monotonic() + host.REPAIR_PAUSE_S
    monkeypatch.setattr(host.time, "monotonic", lambda: later_s)
    repair()
    assert broken.tries == 2


def test_a_process_whose_host_was_killed_starts_another_one_at_its_next_use(tmp_path: Path) -> None:
    uri = f"embedded:{tmp_path}"
    with BookKeeper(uri) as bookkeeper, bookkeeper.create_ledger() as writer:
        writer.append(b"apple")
    os.kill(host_pid(tmp_path), signal.SIGKILL)
    wait_until(lambda: not join._joined[tmp_path].is_open)  # its sockets are closed after it has ended
    with BookKeeper(uri) as bookkeeper:
        assert list(bookkeeper.list_ledgers()) == [writer.ledger_id]
    os.kill(host_pid(tmp_path), signal.SIGTERM)  # this process lives on
    wait_until(lambda: not processes_in(tmp_path))


def test_a_directory_of_a_newer_version_is_named_with_it(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text(json.dumps({"version": 99}))
    with pytest.raises(ConfigError, match=r"did not start: .*cluster\.json has format version 99"):
        BookKeeper(f"embedded:{tmp_path}")


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="the directory cannot be made"):
        BookKeeper(f"embedded:{tmp_path}/file/data")
    with pytest.raises(ConfigError, match="name a directory"):
        BookKeeper("embedded:")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=40k", "none", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no small disk can be mounted here")
    try:
        with pytest.raises(
            ConfigError, match="its cluster did not start: the disk is full: free some space, or name a directory"
        ):
            BookKeeper(f"embedded:{tmp_path}/data")
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_another_machine_is_told_to_use_a_real_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = join.settled(f"embedded:{tmp_path}")
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    with pytest.raises(ConfigError, match=r"serves processes of .* alone"):
        join.resolve(uri)
