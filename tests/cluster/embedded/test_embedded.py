"""``embedded:DIR``, by processes that start, share and end the cluster as users' programs do."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import ClassVar, cast

import pytest

from bk_spark import BookKeeper, ConfigError
from bk_spark.embedded import join, users
from bk_spark.embedded.turn import TURN_FILE
from bk_spark.errors import ProcessFailedError
from bk_spark.local import embedded_host, repair
from bk_spark.local.cluster import LocalCluster
from bk_spark.local.refusals import RefusedBookie

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


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=users.MAX_USERS + 10) as listener:
        yield listener


def test_a_process_that_a_user_named_is_one_until_it_ends(listener: socket.socket) -> None:
    """Spark's Python processes end long before its JVM does."""
    with subprocess.Popen(["sleep", "600"]) as named:
        present = users.Users(listener, "token", lambda: True)

        def seen() -> users.Users:
            present.look()
            return present

        with socket.create_connection(listener.getsockname()) as user:
            wait_until(lambda: bool(seen()))
            user.sendall(f"{named.pid}\n12345678901234567890\nnonsense\n".encode())
            wait_until(lambda: bool(seen().processes))
        wait_until(lambda: not seen().connections)
        assert present
        named.kill()
        wait_until(lambda: not seen())


def test_a_user_too_many_is_told_so_at_once_and_the_next_one_has_the_place_of_one_that_left(
    listener: socket.socket, tmp_path: Path
) -> None:
    present = users.Users(listener, "token", lambda: True)
    state = {"port": listener.getsockname()[1], "token": "token", "pid": 1, "metadata": "zk://a/b", "refused": []}
    status = tmp_path.stat()
    (tmp_path / "embedded.json").write_text(json.dumps({**state, "directory": [status.st_dev, status.st_ino]}))
    with ExitStack() as held, ThreadPoolExecutor() as threads:
        first, *_ = [held.enter_context(socket.create_connection(listener.getsockname())) for _ in range(users.MAX_USERS)]
        wait_until(lambda: present.look() or len(present.connections) == users.MAX_USERS)
        one_more = threads.submit(join.greeted, tmp_path)
        wait_until(lambda: present.look() or one_more.done())
        with pytest.raises(ConfigError, match="its cluster has 256 users, as many as it takes"):
            one_more.result()
        first.close()
        wait_until(lambda: present.look() or len(present.connections) < users.MAX_USERS)
        next_one = threads.submit(join.greeted, tmp_path)
        wait_until(lambda: present.look() or next_one.done())
        joined = next_one.result()
        assert joined is not None
        joined.connection.close()


@pytest.mark.parametrize("fault", ["another directory", "another token", "nobody listens"])
def test_a_state_file_is_believed_only_of_its_own_directory_and_with_its_host(
    listener: socket.socket, tmp_path: Path, fault: str
) -> None:
    present = users.Users(listener, "token", lambda: True)
    state = {"port": listener.getsockname()[1], "token": "token", "pid": 1, "metadata": "zk://a/b", "refused": []}
    (tmp_path / "original").mkdir()
    status = (tmp_path / "original").stat()
    if fault == "another token":
        state["token"] = "other"
    if fault == "nobody listens":
        state["port"] = 1
    (tmp_path / "original/embedded.json").write_text(json.dumps({**state, "directory": [status.st_dev, status.st_ino]}))
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    with ThreadPoolExecutor() as threads:
        for name in ("copy", "original"):
            found = threads.submit(join.greeted, tmp_path / name)
            wait_until(lambda found=found: present.look() or found.done())
            joined = found.result()
            is_believed = name == "original" and fault == "another directory"
            assert (joined is not None) == is_believed
            if joined is not None:
                joined.connection.close()


def test_a_copy_of_a_directory_in_use_does_not_lead_to_the_original(start_user: Callable[..., User], tmp_path: Path) -> None:
    start_user("apple").said()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    with pytest.raises(ConfigError, match="made while the original was in use"):
        BookKeeper(f"embedded:{tmp_path}/copy")
    assert start_user().said() == ["apple"]


def test_a_directory_that_is_used_again_after_its_removal_is_a_new_one(start_user: Callable[..., User], tmp_path: Path) -> None:
    old = start_user("apple")
    old.said()
    hosts = [host_pid(tmp_path / "data")]
    shutil.rmtree(tmp_path / "data", ignore_errors=True)
    start_user("pear").said()
    wait_until(lambda: hosts[0] not in hosts_of(tmp_path / "data"))
    old.end()
    assert start_user().said() == ["pear"]


def test_a_directory_that_was_moved_in_use_is_joined_under_its_new_name(
    start_user: Callable[..., User], tmp_path: Path
) -> None:
    start_user("apple").said()
    serving = host_pid(tmp_path / "data")
    (tmp_path / "data").rename(tmp_path / "moved")
    uri = f"embedded:{tmp_path}/moved"
    with BookKeeper(uri) as moved, BookKeeper(f"embedded:{tmp_path}/data") as other:
        assert len(list(moved.list_ledgers())) == 1
        assert list(other.list_ledgers()) == []
        assert len(hosts_of(tmp_path / "data")) == 2
        assert json.loads((tmp_path / "moved/embedded.json").read_text())["pid"] == serving
    os.kill(serving, signal.SIGTERM)  # this process lives on
    os.kill(json.loads((tmp_path / "data/embedded.json").read_text())["pid"], signal.SIGTERM)


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
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        tries = 0
        refused: ClassVar[list[RefusedBookie]] = []

        def restart_ended(self, *, refused: bool) -> None:
            self.tries += 1
            raise ProcessFailedError("zookeeper", "ended with exit status 1 before it was ready", "a.log", "no space")

    broken = Broken()
    mend = repair.Repair(cast("LocalCluster", broken))
    for _ in range(3):
        mend()
    assert broken.tries == 1
    assert "no space" in caplog.text
    later_s = time.monotonic() + repair.REPAIR_PAUSE_S
    monkeypatch.setattr(repair.time, "monotonic", lambda: later_s)
    mend()
    assert broken.tries == 2


def test_a_bookie_that_refused_is_tried_again_once_its_cookie_changes_or_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refused:
        tried: ClassVar[list[bool]] = []
        refused: ClassVar[list[RefusedBookie]] = [RefusedBookie("bookie-1", "b-1", tmp_path, "no")]

        def restart_ended(self, *, refused: bool) -> None:
            self.tried.append(refused)

    (tmp_path / "cookie").write_text("damaged")
    cluster = Refused()
    mend = repair.Repair(cast("LocalCluster", cluster))
    mend()
    (tmp_path / "good").write_text("good")
    (tmp_path / "good").rename(tmp_path / "cookie")
    mend()
    mend()
    later_s = time.monotonic() + repair.REFUSED_PAUSE_S
    monkeypatch.setattr(repair.time, "monotonic", lambda: later_s)
    mend()
    assert cluster.tried == [False, True, False, True]


def test_a_process_whose_host_was_killed_starts_another_one_at_its_next_use(tmp_path: Path) -> None:
    uri = f"embedded:{tmp_path}"
    with BookKeeper(uri) as bookkeeper, bookkeeper.create_ledger() as writer:
        writer.append(b"apple")
    joined = join._joined[(tmp_path.stat().st_dev, tmp_path.stat().st_ino)]
    os.kill(host_pid(tmp_path), signal.SIGKILL)
    wait_until(lambda: not joined.is_open)  # its sockets are closed after it has ended
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


def test_a_suspended_host_is_known_by_what_it_holds_open_not_by_its_number(tmp_path: Path) -> None:
    turn = tmp_path / TURN_FILE
    turn.touch()
    with (
        turn.open() as file,
        subprocess.Popen(["sleep", "60"], pass_fds=[file.fileno()]) as its_host,
        subprocess.Popen(["sleep", "60"]) as another,
    ):
        try:
            assert not embedded_host._is_suspended(its_host.pid, tmp_path)
            for process in (its_host, another):
                process.send_signal(signal.SIGSTOP)
                os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            assert embedded_host._is_suspended(its_host.pid, tmp_path)
            assert not embedded_host._is_suspended(another.pid, tmp_path)
        finally:
            its_host.kill()
            another.kill()
    assert not embedded_host._is_suspended(its_host.pid, tmp_path)
