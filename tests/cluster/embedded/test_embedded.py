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

import bk_spark
from bk_spark import BookKeeper, ConfigError
from bk_spark.cli import main
from bk_spark.config import ClientConfig
from bk_spark.embedded import join, users
from bk_spark.embedded.turn import TURN_FILE
from bk_spark.errors import MetadataUnavailableError, ProcessFailedError
from bk_spark.local import embedded_host, repair
from bk_spark.local.cluster import LocalCluster
from bk_spark.local.refusals import RefusedBookie
from tests.checkout import ROOT

DEADLINE_S = 60.0

ONE = (1, 1, 1)
"""Ensemble size, write quorum, ack quorum. By default they are those of a cluster of three bookies."""

USER = """\
import sys
from bk_spark import BookKeeper
with BookKeeper("embedded:" + sys.argv[1]) as bookkeeper:
    if len(sys.argv) > 2:
        with bookkeeper.create_ledger(*map(int, sys.argv[3:])) as writer:
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

    def __init__(self, package: Path, directory: Path, *words: object) -> None:
        command = [sys.executable, "-P", "-c", USER, str(directory), *map(str, words)]
        environment = {**os.environ, "PYTHONPATH": str(package)}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
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


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to import ``bk_spark`` from whose hosts run one bookie, and end soon after their last user."""
    folder = tmp_path_factory.mktemp("quick")
    ignored = shutil.ignore_patterns("*.pyc.*")  # which other processes are writing
    shutil.copytree(Path(bk_spark.__file__).parent, folder / "bk_spark", ignore=ignored)
    host = folder / "bk_spark/local/embedded_host.py"
    text = host.read_text()
    for shipped, smaller in (("\nBOOKIES = 3\n", "\nBOOKIES = 1\n"), ("\nLINGER_S = 5.0\n", "\nLINGER_S = 0.5\n")):
        assert text.count(shipped) == 1
        text = text.replace(shipped, smaller)
    host.write_text(text)
    return folder


@pytest.fixture
def start_user(quick: Path) -> Iterator[Callable[..., User]]:
    users: list[User] = []

    def start(directory: Path, *words: object, package: Path = quick) -> User:
        users.append(User(package, directory, *words))
        return users[-1]

    yield start
    for user in users:
        user.end()


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A directory of one test."""
    yield tmp_path / "data"
    end_hosts(tmp_path / "data")


@pytest.fixture(scope="module")
def shared(quick: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory that this process uses, with whatever words are in it. Each test leaves it served, by one host."""
    directory = tmp_path_factory.mktemp("shared") / "data"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(join, "__file__", str(quick / "bk_spark/embedded/join.py"))  # which is where the host comes from
        add(directory, "first")
        yield directory
    end_hosts(directory)


def add(directory: Path, word: str) -> None:
    """By this process, which is a user from then on."""
    with BookKeeper(f"embedded:{directory}") as bookkeeper, bookkeeper.create_ledger(*ONE) as writer:
        writer.append(word.encode())


def joined_to(directory: Path) -> join._Joined:
    """The connection of this process to the directory's host."""
    status = directory.stat()
    return join._joined[(status.st_dev, status.st_ino)]


def end_hosts(directory: Path) -> None:
    """At once: with its host all of a cluster is killed."""
    for pid in hosts_of(directory):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not processes_in(directory))


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


def look_until(present: users.Users, condition: Callable[[], bool]) -> None:
    """A look waits for whoever comes or goes."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s
        present.look()


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


def test_data_stays_after_the_last_user_and_is_served_to_the_next_and_a_killed_one_keeps_nothing_running(
    data: Path, start_user: Callable[..., User]
) -> None:
    first = start_user(data, "apple", package=ROOT)
    first.said()
    assert len(processes_in(data)) == 5
    first.end()
    wait_until(lambda: not processes_in(data))
    second = start_user(data)
    assert second.said() == ["apple"]
    second.process.kill()
    wait_until(lambda: not processes_in(data))


def test_processes_that_begin_at_the_same_moment_share_one_cluster_that_serves_as_long_as_one_of_them_is_left(
    data: Path, start_user: Callable[..., User]
) -> None:
    users = [start_user(data, word, *ONE) for word in ("apple", "pear", "plum")]
    for user in users:
        user.said()
    serving = host_pid(data)
    for user in users[:2]:
        user.end()
    assert sorted(start_user(data).said()) == ["apple", "pear", "plum"]
    assert host_pid(data) == serving


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=users.MAX_USERS + 10) as listener:
        yield listener


def test_a_process_that_a_user_named_is_one_until_it_ends(listener: socket.socket) -> None:
    """Spark's Python processes end long before its JVM does."""
    with subprocess.Popen(["sleep", "600"]) as named:
        present = users.Users(listener, "token", lambda: True)
        with socket.create_connection(listener.getsockname()) as user:
            look_until(present, lambda: bool(present))
            user.sendall(f"{named.pid}\n12345678901234567890\nnonsense\n".encode())
            look_until(present, lambda: bool(present.processes))
        look_until(present, lambda: not present.connections)
        assert present
        named.kill()
        look_until(present, lambda: not present)


def test_a_user_too_many_is_told_so_at_once_and_the_next_one_has_the_place_of_one_that_left(
    listener: socket.socket, tmp_path: Path
) -> None:
    present = users.Users(listener, "token", lambda: True)
    state = {"port": listener.getsockname()[1], "token": "token", "pid": 1, "metadata": "zk://a/b", "refused": []}
    status = tmp_path.stat()
    (tmp_path / "embedded.json").write_text(json.dumps({**state, "directory": [status.st_dev, status.st_ino]}))
    with ExitStack() as held, ThreadPoolExecutor() as threads:
        first, *_ = [held.enter_context(socket.create_connection(listener.getsockname())) for _ in range(users.MAX_USERS)]
        look_until(present, lambda: len(present.connections) == users.MAX_USERS)
        one_more = threads.submit(join.greeted, tmp_path)
        look_until(present, one_more.done)
        with pytest.raises(ConfigError, match="its cluster has 256 users, as many as it takes"):
            one_more.result()
        first.close()
        look_until(present, lambda: len(present.connections) < users.MAX_USERS)
        next_one = threads.submit(join.greeted, tmp_path)
        look_until(present, next_one.done)
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
            look_until(present, found.done)
            joined = found.result()
            is_believed = name == "original" and fault == "another directory"
            assert (joined is not None) == is_believed
            if joined is not None:
                joined.connection.close()


def test_a_copy_of_a_directory_in_use_does_not_lead_to_the_original(
    start_user: Callable[..., User], shared: Path, tmp_path: Path
) -> None:
    add(shared, "in use")
    shutil.copytree(shared, tmp_path / "copy")
    with pytest.raises(ConfigError, match="made while the original was in use"):
        BookKeeper(f"embedded:{tmp_path}/copy")
    assert "in use" in start_user(shared).said()


def test_a_directory_that_is_used_again_after_its_removal_is_a_new_one(start_user: Callable[..., User], shared: Path) -> None:
    add(shared, "of the removed one")
    old = set(processes_in(shared))
    shutil.rmtree(shared, ignore_errors=True)
    start_user(shared, "of the new one", *ONE).said()
    wait_until(lambda: not old & set(processes_in(shared)))
    add(shared, "of it too")
    assert start_user(shared).said() == ["of the new one", "of it too"]


def test_a_directory_that_was_moved_in_use_is_joined_under_its_new_name(start_user: Callable[..., User], shared: Path) -> None:
    add(shared, "moved")
    serving, before = host_pid(shared), set(processes_in(shared))
    moved = shared.with_name("moved")
    shared.rename(moved)
    with BookKeeper(f"embedded:{shared}") as other:
        assert "moved" in start_user(moved).said()
        assert list(other.list_ledgers()) == []
        assert len(hosts_of(shared)) == 2
        assert json.loads((moved / "embedded.json").read_text())["pid"] == serving
    os.kill(json.loads((shared / "embedded.json").read_text())["pid"], signal.SIGKILL)
    wait_until(lambda: set(processes_in(shared)) == before)
    shutil.rmtree(shared)
    moved.rename(shared)


def test_after_a_killed_host_the_next_use_starts_another_one(start_user: Callable[..., User], shared: Path) -> None:
    """Also by a process that had used the killed one."""
    add(shared, "of the killed one")
    joined, old = joined_to(shared), set(processes_in(shared))
    os.kill(host_pid(shared), signal.SIGKILL)
    wait_until(lambda: not joined.is_open)  # its sockets are closed after it has ended
    add(shared, "of another one")
    assert {"of the killed one", "of another one"} <= set(start_user(shared).said())
    wait_until(lambda: not old & set(processes_in(shared)))


@pytest.mark.parametrize("rest", [0, 1], ids=["ZooKeeper and every bookie", "one of them"])
def test_what_was_killed_of_the_cluster_serves_again_to_the_next_user(
    start_user: Callable[..., User], shared: Path, rest: int
) -> None:
    before = f"before {rest} was left"
    add(shared, before)
    serving = host_pid(shared)
    victims = [pid for pid in processes_in(shared) if pid != serving]
    assert len(victims) == 2
    for pid in victims[:1] if rest else victims:
        os.kill(pid, signal.SIGKILL)
    after = f"after {rest} was left"
    start_user(shared, after, *ONE).said()
    assert {before, after} <= set(start_user(shared).said())
    assert host_pid(shared) == serving
    assert len(processes_in(shared)) == 3


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


@pytest.mark.parametrize("name", ["embedded.log", "embedded.lock"])
def test_a_link_that_somebody_made_in_the_directory_is_not_followed(tmp_path: Path, name: str) -> None:
    other = tmp_path / "other"
    other.write_text("precious\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / name).symlink_to(other)
    with pytest.raises(ConfigError):
        BookKeeper(f"embedded:{tmp_path / 'data'}")
    assert other.read_text() == "precious\n"


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


def test_with_tls_only_who_can_read_the_directory_is_served_and_it_stays_so(data: Path) -> None:
    with BookKeeper(f"embedded:{data}?tls=true") as client:
        assert client.config.tls_certificate == str(data / "tls/client.pem")
        with client.create_ledger(*ONE) as writer:
            writer.append(b"kept")
        uri = client.metadata_store.uri
        assert (data / "tls/client.key").stat().st_mode & 0o077 == 0
        with pytest.raises(MetadataUnavailableError, match="speaks TLS at this port and this client does not"):
            BookKeeper(uri.removesuffix("?tls=true"), ClientConfig(connect_timeout_s=60.0))
        with BookKeeper(f"embedded:{data}") as other:
            (batch,) = other.open_ledger(writer.ledger_id).read(0, 0)
            assert batch["payload"].to_pylist() == [b"kept"]
        assert main(["ledger", "list", "--metadata", f"embedded:{data}"]) == 0


def test_a_cluster_that_runs_without_tls_is_no_cluster_with_tls(shared: Path) -> None:
    with pytest.raises(ConfigError, match="its cluster was started without TLS: end its users, then use"):
        BookKeeper(f"embedded:{shared}?tls=true")
