"""Directories of local clusters that are copied, moved, removed, restored and damaged."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from bk_spark import BookKeeper, ConfigError
from bk_spark.bookie.identity.cookie import read_cookie
from bk_spark.cli import main
from bk_spark.errors import NotEnoughBookiesError, ProcessFailedError
from bk_spark.local import copying, renewal
from bk_spark.local.cluster import LocalCluster
from bk_spark.local.copying import accept_copy
from bk_spark.local.ports import Ports
from bk_spark.local.state import read_state
from bk_spark.metadata.registration import instance_id
from bk_spark.metadata.znodes import Znodes

ONE, EACH = (1, 1, 1), (3, 3, 2)
"""Ensemble size, write quorum, ack quorum: one bookie has an entry, or each."""


def add(cluster: LocalCluster, word: str, quorums: tuple[int, int, int] = ONE) -> None:
    with BookKeeper(cluster.metadata_uri) as client, client.create_ledger(*quorums) as writer:
        writer.append(word.encode())


def words(cluster: LocalCluster) -> list[str]:
    found = []
    with BookKeeper(cluster.metadata_uri) as client:
        for ledger_id in client.list_ledgers():
            with client.open_ledger(ledger_id) as reader:
                found += [one.decode() for batch in reader.read(0, 0) for one in batch.column("payload").to_pylist()]
    return found


def identity(cluster: LocalCluster) -> str:
    with BookKeeper(cluster.metadata_uri) as client:
        return instance_id(client.metadata_store, Znodes("/ledgers"))


def ports(cluster: LocalCluster) -> set[int]:
    return {cluster.zookeeper.port, *(bookie.port for bookie in cluster.bookies)}


def processes_in(directory: Path) -> list[int]:
    """The children of the cluster in the directory."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if f"bk_spark={directory}/" in command_of(pid)]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().replace("\0", " ")
    except OSError:
        return ""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that nobody uses, with the word "template"."""
    directory = tmp_path_factory.mktemp("template") / "data"
    with LocalCluster(1, directory) as cluster:
        add(cluster, "template")
    return directory


@pytest.fixture
def copied(template: Path, tmp_path: Path) -> Path:
    subprocess.run(["cp", "-a", str(template), str(tmp_path / "copy")], check=True)
    return tmp_path / "copy"


@pytest.fixture(scope="module")
def opened(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[LocalCluster]]:
    """Two copies that were opened at the same moment, with a word of their own each. Tests leave all of it serving."""
    directories = [tmp_path_factory.mktemp("opened") / name for name in ("left", "right")]
    for directory in directories:
        shutil.copytree(template, directory)
    with ThreadPoolExecutor() as threads:
        clusters = list(threads.map(lambda directory: LocalCluster(1, directory), directories))
    with ExitStack() as stack:
        for cluster in clusters:
            stack.enter_context(cluster)
            add(cluster, cluster.data_dir.name)
        yield clusters


def test_copies_that_are_opened_at_the_same_moment_are_clusters_of_their_own(
    opened: list[LocalCluster], template: Path
) -> None:
    for cluster in opened:
        assert words(cluster) == ["template", cluster.data_dir.name]
    assert not ports(opened[0]) & ports(opened[1])
    original = json.loads((template / "cluster.json").read_text())
    for cluster in opened:
        assert not ports(cluster) & {original["zookeeper_port"], *original["bookie_ports"]}
    assert len({identity(cluster) for cluster in opened}) == 2


def test_a_bookie_of_a_copy_is_refused_by_another_one_and_by_the_original(opened: list[LocalCluster], tmp_path: Path) -> None:
    """All have gone on: one ledger id means two ledgers."""
    bookie, other = opened[0].bookies[0], opened[1].bookies[0]
    bookie.stop()
    bookie.data_dir.rename(tmp_path / "own")
    shutil.copytree(other.data_dir, bookie.data_dir)
    with pytest.raises(ProcessFailedError, match="it was formatted for the cluster with instance id"):
        bookie.start()
    shutil.rmtree(bookie.data_dir)
    (tmp_path / "own").rename(bookie.data_dir)
    bookie.start()


def test_an_interrupted_renewal_is_done_again(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its first step, and then after its last one."""

    def killed(*_: object) -> None:
        raise ConfigError("the test", "killed", "start again")

    wanted = set()
    for owner, step in ((renewal, "instance_id"), (LocalCluster, "_save_ports")):
        with monkeypatch.context() as broken:
            broken.setattr(owner, step, killed)
            with pytest.raises(ConfigError, match="killed"):
                LocalCluster(1, copied)
        wanted.add(json.loads((copied / "cluster.json").read_text())["renewal"])
    with LocalCluster(1, copied) as cluster:
        assert {identity(cluster)} == wanted
        assert words(cluster) == ["template"]
        state = read_state(cluster.place)
        assert (state.renewal, state.mark) == ("", cluster.place.mark)  # the next use renews nothing


def test_a_copy_that_was_made_in_use_is_refused_until_its_owner_accepts_it(opened: list[LocalCluster], tmp_path: Path) -> None:
    original, live = opened[0], tmp_path / "live"
    subprocess.run(["cp", "-a", str(original.data_dir), str(live)], check=True)
    with pytest.raises(ConfigError, match=r"made while the original was in use.*bk-spark local copy"):
        LocalCluster(1, live)
    assert words(original) == ["template", "left"]
    assert main(["local", "accept-copy", str(live)]) == 0
    with LocalCluster(1, live) as cluster:
        assert words(cluster) == ["template", "left"]


def test_a_directory_without_its_state_is_a_copy_once_its_owner_accepts_it(copied: Path) -> None:
    former = read_cookie(copied / "bookie-1/data").instance_id
    (copied / "cluster.json").unlink()
    with pytest.raises(ConfigError, match=r"cluster.json is missing in it .*bk-spark local accept-copy"):
        LocalCluster(1, copied)
    assert accept_copy(copied)
    with LocalCluster(1, copied) as cluster:
        assert words(cluster) == ["template"]
        assert identity(cluster) != former
    assert (copied / "zookeeper").stat().st_mode & 0o777 == 0o700


def test_the_copy_command_copies_what_nobody_uses_and_refuses_the_rest(
    opened: list[LocalCluster],
    copied: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = contents(copied)
    assert main(["local", "copy", str(copied), str(tmp_path / "second")]) == 0
    assert contents(copied) == before
    capsys.readouterr()
    assert main(["local", "copy", str(copied), str(tmp_path / "second")]) == 1
    assert "it exists" in capsys.readouterr().err
    monkeypatch.setattr(copying, "WAIT_S", 0.3)
    assert main(["local", "copy", str(opened[0].data_dir), str(tmp_path / "third")]) == 1
    refused = capsys.readouterr().err
    assert "its cluster is in use" in refused
    assert len(refused.splitlines()) == 1
    assert not (tmp_path / "third").exists()
    with LocalCluster(1, tmp_path / "second") as second:
        add(second, "second")
        assert words(second) == ["template", "second"]


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_cluster_follows_its_directory_and_leaves_the_next_one_there_alone(copied: Path, tmp_path: Path) -> None:
    """One whose directory is moved, and then one whose directory is removed. What a removal left is moved aside."""
    with LocalCluster(1, copied) as moved:
        copied.rename(tmp_path / "moved")
        add(moved, "moved")
        moved.bookies[0].kill()
        moved.restart_ended()
        with LocalCluster(1, copied) as removed:
            add(removed, "removed")
            moved.close()
            assert words(removed) == ["removed"]
            shutil.rmtree(copied)
            assert removed.is_gone
            (copied / "bookie-1/data/journal").mkdir(parents=True)
            with LocalCluster(1, copied) as other:
                add(other, "other")
                removed.close()
                assert words(other) == ["other"]
    assert (copied / "remains-1/bookie-1/data/journal").is_dir()
    with LocalCluster(1, tmp_path / "moved") as moved:
        assert words(moved) == ["template", "moved"]
    with LocalCluster(1, copied) as other:
        assert words(other) == ["other"]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[LocalCluster]]:
    """The one cluster in a directory with three bookies, in some use of it. Tests leave all of it serving."""
    held = [LocalCluster(3, tmp_path_factory.mktemp("three") / "data")]
    yield held
    held[0].close()


def test_the_others_serve_without_a_bookie_that_refuses_its_start(
    three: list[LocalCluster], caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    former = three[0]
    directory = former.data_dir
    former.close()
    cookie = directory / "bookie-2/data/cookie"
    good = cookie.read_bytes()
    cookie.write_bytes(good[:-3])
    (directory / "bookie-3/data/boot").write_bytes(b"damaged")
    cluster = three[0] = LocalCluster(3, directory)
    assert [one.name for one in cluster.refused] == ["bookie-2", "bookie-3"]
    assert "bk-spark cookie fix" in cluster.refused[1].reason
    assert "serves without bookie-3" in caplog.text
    with BookKeeper(cluster.metadata_uri) as client:
        with client.create_ledger(*ONE) as writer:
            writer.append(b"served")
        with pytest.raises(NotEnoughBookiesError, match=former.bookies[2].bookie_id):
            client.create_ledger()
    refused = cluster.refused[1]
    options = ["--data-dir", str(refused.data_dir), "--metadata", cluster.metadata_uri]
    assert main(["cookie", "fix", refused.bookie_id, *options]) == 0, capsys.readouterr().err
    cookie.write_bytes(good)
    cluster.restart_ended()
    assert not cluster.refused
    assert all(bookie.pid is not None for bookie in cluster.bookies)


def test_a_bookie_of_an_older_copy_repairs_itself_from_the_others(
    three: list[LocalCluster], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = three[0]
    bookie = cluster.bookies[1]
    bookie.stop()
    shutil.copytree(bookie.data_dir, tmp_path / "old")
    bookie.start()
    add(cluster, "later", EACH)
    bookie.stop()
    shutil.rmtree(bookie.data_dir)
    shutil.copytree(tmp_path / "old", bookie.data_dir)
    cluster.restart_ended()
    assert not cluster.refused
    assert "repairs itself from the other bookies" in caplog.text
    assert "starts in limbo" in bookie.log.read_text()
    assert "later" in words(cluster)


def test_a_cluster_without_any_bookie_that_starts_says_why(copied: Path) -> None:
    (copied / "bookie-1/data/boot").write_bytes(b"damaged")
    with pytest.raises(ProcessFailedError, match="bk-spark cookie fix"):
        LocalCluster(1, copied)
    assert not processes_in(copied)


def test_a_bookie_of_the_command_that_dies_is_named_and_started_again(copied: Path) -> None:
    """The command runs the cluster, which serves when it says so, until it is told to stop."""
    command = [sys.executable, "-m", "bk_spark.cli", "local", "--bookies", "1", "--data-dir", str(copied), "--json"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=buffered) as local:
        assert local.stdout is not None
        assert local.stderr is not None
        record = json.loads(local.stdout.readline())
        with BookKeeper(record["metadata"]) as client:
            assert [one.bookie_id for one in client.list_bookies()] == record["bookies"]
        victim = next(pid for pid in processes_in(copied) if "bookie start" in command_of(pid))
        os.kill(victim, signal.SIGKILL)
        told = next(line for line in local.stderr if "bookie-1" in line)
        assert "bookie-1 was killed by signal 9, and is started again" in told
        local.send_signal(signal.SIGINT)
        assert local.wait(60) == 0
    assert not processes_in(copied)


class OtherZooKeeper(threading.Thread):
    """Listens on a port that is reserved, as whoever asks for this very port can, and answers like a ZooKeeper."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", port))
        self.start()

    def run(self) -> None:
        while True:
            try:
                asked, _ = self.listener.accept()
            except OSError:
                return
            with asked:
                asked.recv(100)
                asked.sendall(b"Environment:\nuser.name=somebody\n")


def test_another_zookeeper_on_the_port_is_not_taken_for_the_one_that_was_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    others = []
    reserve = LocalCluster._zookeeper_port

    def taken(self: LocalCluster) -> int:
        port = reserve(self)
        others.append(OtherZooKeeper(port))
        return port

    monkeypatch.setattr(LocalCluster, "_zookeeper_port", taken)
    with LocalCluster(0, tmp_path) as cluster:
        assert cluster.zookeeper.port != others[0].listener.getsockname()[1]
        assert identity(cluster)
    others[0].listener.close()


def test_a_port_is_kept_for_one_cluster_at_a_time() -> None:
    with Ports() as first, Ports() as second:
        port = first.reserve(None)
        assert first.reserve(port) != port
        assert second.reserve(port) != port
        first.close()
        assert second.reserve(port) == port
        second.avoided = frozenset({port})
        second.close()
        assert second.reserve(port) != port
