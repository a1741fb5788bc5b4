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
from pathlib import Path

import pytest

from bk_spark import BookKeeper, ConfigError
from bk_spark.errors import NotEnoughBookiesError, ProcessFailedError
from bk_spark.local import renewal
from bk_spark.local.cluster import LocalCluster
from bk_spark.local.copying import accept_copy
from bk_spark.local.ports import Ports
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


def test_copies_that_are_opened_at_the_same_moment_are_clusters_of_their_own(template: Path, tmp_path: Path) -> None:
    directories = [tmp_path / name for name in ("left", "right")]
    for directory in directories:
        shutil.copytree(template, directory)
    with ThreadPoolExecutor() as threads:
        clusters = list(threads.map(lambda directory: LocalCluster(1, directory), directories))
    try:
        for cluster, directory in zip(clusters, directories, strict=True):
            add(cluster, directory.name)
        for cluster, directory in zip(clusters, directories, strict=True):
            assert words(cluster) == ["template", directory.name]
        assert not ports(clusters[0]) & ports(clusters[1])
        original = json.loads((template / "cluster.json").read_text())
        for cluster in clusters:
            assert not ports(cluster) & {original["zookeeper_port"], *original["bookie_ports"]}
        assert len({identity(cluster) for cluster in clusters}) == 2
    finally:
        for cluster in clusters:
            cluster.close()


def test_a_bookie_of_a_copy_is_refused_by_the_original(copied: Path, template: Path, tmp_path: Path) -> None:
    """Both have gone on: one ledger id means two ledgers."""
    with LocalCluster(1, copied) as cluster:
        add(cluster, "of the copy")
    shutil.copytree(template, tmp_path / "other")
    with LocalCluster(1, tmp_path / "other") as other:
        other.bookies[0].stop()
        shutil.rmtree(other.bookies[0].data_dir)
        shutil.copytree(copied / "bookie-1/data", other.bookies[0].data_dir)
        with pytest.raises(ProcessFailedError, match="it was formatted for the cluster with instance id"):
            other.bookies[0].start()


@pytest.mark.parametrize("step", ["instance_id", "_save_ports"], ids=["before the first step", "after the last step"])
def test_an_interrupted_renewal_is_done_again(copied: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def killed(*_: object) -> None:
        raise ConfigError("the test", "killed", "start again")

    with monkeypatch.context() as broken:
        broken.setattr(*((renewal, step) if step == "instance_id" else (LocalCluster, step)), killed)
        with pytest.raises(ConfigError, match="killed"):
            LocalCluster(1, copied)
    wanted = json.loads((copied / "cluster.json").read_text())["renewal"]
    for _ in range(2):
        with LocalCluster(1, copied) as cluster:
            assert words(cluster) == ["template"]
            assert identity(cluster) == wanted


def test_a_copy_that_was_made_in_use_is_refused_until_its_owner_accepts_it(copied: Path, tmp_path: Path) -> None:
    with LocalCluster(1, copied) as cluster:
        subprocess.run(["cp", "-a", str(copied), str(tmp_path / "live")], check=True)
        with pytest.raises(ConfigError, match=r"made while the original was in use.*bk-spark local copy"):
            LocalCluster(1, tmp_path / "live")
        assert words(cluster) == ["template"]
    command = [sys.executable, "-m", "bk_spark.cli", "local", "accept-copy", str(tmp_path / "live")]
    subprocess.run(command, check=True, capture_output=True)
    with LocalCluster(1, tmp_path / "live") as cluster:
        assert words(cluster) == ["template"]


def test_a_directory_without_its_state_is_a_copy_once_its_owner_accepts_it(copied: Path) -> None:
    with LocalCluster(1, copied) as cluster:
        former = identity(cluster)
    (copied / "cluster.json").unlink()
    with pytest.raises(ConfigError, match=r"cluster.json is missing in it .*bk-spark local accept-copy"):
        LocalCluster(1, copied)
    assert accept_copy(copied)
    for _ in range(2):
        with LocalCluster(1, copied) as cluster:
            assert words(cluster) == ["template"]
            assert identity(cluster) != former
        assert (copied / "zookeeper").stat().st_mode & 0o777 == 0o700


def test_the_copy_command_copies_what_nobody_uses_and_refuses_the_rest(copied: Path, tmp_path: Path) -> None:
    def copy(target: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "bk_spark.cli", "local", "copy", str(copied), str(target)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert copy(tmp_path / "second").returncode == 0
    assert "it exists" in copy(tmp_path / "second").stderr
    with LocalCluster(1, tmp_path / "second") as second, LocalCluster(1, copied) as first:
        add(second, "second")
        assert (words(first), words(second)) == (["template"], ["template", "second"])
        refused = copy(tmp_path / "third")
        assert refused.returncode == 1
        assert "its cluster is in use" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    assert not (tmp_path / "third").exists()


def test_a_cluster_follows_its_directory_and_leaves_the_next_one_there_alone(copied: Path, tmp_path: Path) -> None:
    with LocalCluster(1, copied) as cluster:
        copied.rename(tmp_path / "moved")
        add(cluster, "moved")
        cluster.bookies[0].kill()
        cluster.restart_ended()
        with LocalCluster(1, copied) as other:
            add(other, "other")
            cluster.close()
            assert words(other) == ["other"]
    with LocalCluster(1, tmp_path / "moved") as cluster:
        assert words(cluster) == ["template", "moved"]
    with LocalCluster(1, copied) as other:
        assert words(other) == ["other"]


def test_a_cluster_whose_directory_was_removed_writes_nothing_into_the_next_one(copied: Path) -> None:
    with LocalCluster(1, copied) as cluster:
        shutil.rmtree(copied)
        assert cluster.is_gone
        with LocalCluster(1, copied) as other:
            add(other, "other")
            cluster.close()
            assert words(other) == ["other"]
    with LocalCluster(1, copied) as other:
        assert words(other) == ["other"]


def test_what_was_left_by_a_removal_is_moved_aside(tmp_path: Path) -> None:
    (tmp_path / "bookie-1/data/journal").mkdir(parents=True)
    with LocalCluster(1, tmp_path) as cluster:
        assert words(cluster) == []
    assert (tmp_path / "remains-1/bookie-1/data/journal").is_dir()


@pytest.fixture
def three(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(3, tmp_path / "data") as cluster:
        yield cluster


def test_the_others_serve_without_a_bookie_that_refuses_its_start(
    three: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    add(three, "kept")
    directory = three.data_dir
    three.close()
    cookie = directory / "bookie-2/data/cookie"
    good = cookie.read_bytes()
    cookie.write_bytes(good[:-3])
    (directory / "bookie-3/data/boot").write_bytes(b"damaged")
    with LocalCluster(3, directory) as cluster:
        assert [one.name for one in cluster.refused] == ["bookie-2", "bookie-3"]
        assert "bk-spark cookie fix" in cluster.refused[1].reason
        assert "serves without bookie-3" in caplog.text
        with BookKeeper(cluster.metadata_uri) as client:
            client.create_ledger(*ONE).close()
            with pytest.raises(NotEnoughBookiesError, match=three.bookies[2].bookie_id):
                client.create_ledger()
        refused = cluster.refused[1]
        words = ["cookie", "fix", refused.bookie_id, "--data-dir", str(refused.data_dir), "--metadata", cluster.metadata_uri]
        fixed = subprocess.run([sys.executable, "-m", "bk_spark.cli", *words], capture_output=True, text=True, check=False)
        assert fixed.returncode == 0, fixed.stderr
        cookie.write_bytes(good)
        cluster.restart_ended()
        assert not cluster.refused
        assert all(bookie.pid is not None for bookie in cluster.bookies)


def test_a_bookie_of_an_older_copy_repairs_itself_from_the_others(
    three: LocalCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bookie = three.bookies[1]
    bookie.stop()
    shutil.copytree(bookie.data_dir, tmp_path / "old")
    bookie.start()
    add(three, "later", EACH)
    bookie.stop()
    bookie.start()
    bookie.stop()
    shutil.rmtree(bookie.data_dir)
    shutil.copytree(tmp_path / "old", bookie.data_dir)
    three.restart_ended()
    assert not three.refused
    assert "repairs itself from the other bookies" in caplog.text
    assert "starts in limbo" in bookie.log.read_text()
    assert words(three) == ["later"]


def test_a_cluster_without_any_bookie_that_starts_says_why_and_starts_zookeeper_alone(copied: Path) -> None:
    (copied / "bookie-1/data/boot").write_bytes(b"damaged")
    with pytest.raises(ProcessFailedError, match="bk-spark cookie fix"):
        LocalCluster(1, copied)
    with LocalCluster(1, copied, start_bookies=False) as cluster:
        assert cluster.zookeeper.pid is not None
        assert cluster.bookies[0].pid is None


def test_a_bookie_of_the_command_that_dies_is_named_and_started_again(copied: Path) -> None:
    command = [sys.executable, "-m", "bk_spark.cli", "local", "--bookies", "1", "--data-dir", str(copied), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as local:
        assert local.stdout is not None
        assert local.stderr is not None
        json.loads(local.stdout.readline())
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
