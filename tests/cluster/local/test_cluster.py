"""A local cluster of real processes: ready when it says so, all there again when reused, gone with its owner."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError, ProcessFailedError
from bk_spark.local import cluster as local_cluster
from bk_spark.local.cluster import LocalBookie, LocalCluster
from bk_spark.local.process import Keeper, LocalProcess
from bk_spark.local.zookeeper_server import find_java, find_zookeeper_jars
from bk_spark.metadata.registration import list_bookies, lookup
from bk_spark.metadata.store import ANY_VERSION
from bk_spark.metadata.uri import parse_uri
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import ZooKeeperStore, connect

DEADLINE_S = 60.0
ZNODES = Znodes("/ledgers")


@pytest.fixture(scope="module")
def own() -> Iterator[LocalCluster]:
    """A cluster that these tests may take apart; each leaves all of its processes running."""
    with LocalCluster(bookies=2) as cluster:
        yield cluster


@pytest.fixture
def bookie(own: LocalCluster) -> LocalBookie:
    return own.bookies[0]


@pytest.fixture
def store(own: LocalCluster) -> Iterator[ZooKeeperStore]:
    with at(own.metadata_uri) as store:
        yield store


def test_a_killed_bookie_is_reaped_keeps_its_port_and_starts_again_under_its_id(
    bookie: LocalBookie, store: ZooKeeperStore
) -> None:
    """Using it in the wrong state is refused by name."""
    first = bookie.pid
    with pytest.raises(ConfigError, match=f"bookie-1 is running as process {first}: stop"):
        bookie.start()
    bookie.kill()
    assert bookie.pid is None
    assert not is_alive(first)
    assert not accepts(bookie)
    for call in (bookie.kill, bookie.stop, bookie.suspend, bookie.resume):
        with pytest.raises(ConfigError, match="bookie-1 is not running: start"):
            call()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", bookie.port))
    bookie.start()
    assert bookie.pid not in (None, first)
    assert accepts(bookie)
    address = lookup(store, ZNODES, bookie.bookie_id)
    assert address is not None
    assert f"{address.host}:{address.port}" == bookie.address


def test_what_has_ended_is_started_again_and_what_runs_is_left_alone(own: LocalCluster, bookie: LocalBookie) -> None:
    other = own.bookies[1].pid
    own.zookeeper.kill()
    bookie.kill()
    own.restart_ended()
    again = (own.zookeeper.pid, bookie.pid)
    assert accepts(bookie)
    own.restart_ended()
    assert (own.zookeeper.pid, bookie.pid, own.bookies[1].pid) == (*again, other)


def test_a_zookeeper_that_ends_while_bookies_are_started_again_is_started_again_too(
    own: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of processes that are killed together one may be seen to have ended before the others."""
    bookie, seen = own.bookies[0], itertools.count()

    def pid(process: LocalProcess) -> int | None:
        is_first_look = process is own.zookeeper and next(seen) == 0
        return 1 if is_first_look else really(process)

    really = LocalProcess.pid.fget
    own.zookeeper.kill()
    bookie.kill()
    monkeypatch.setattr(own, "client_config", replace(own.client_config, connect_timeout_s=2.0, session_timeout_s=2.0))
    monkeypatch.setattr(LocalProcess, "pid", property(pid))
    own.restart_ended()
    assert own.zookeeper.pid is not None
    assert accepts(bookie)


def test_a_suspended_process_answers_nothing_that_is_asked_afterwards(own: LocalCluster) -> None:
    for _ in range(20):
        own.zookeeper.suspend()
        states = {Path(f"/proc/{own.zookeeper.pid}/task/{task}/stat").read_text().rsplit(") ", 1)[1][0] for task in tasks(own)}
        own.zookeeper.resume()
        assert states == {"T"}


def test_a_stopped_bookie_leaves_the_list_at_once_also_one_that_is_suspended(
    bookie: LocalBookie, store: ZooKeeperStore
) -> None:
    bookie.suspend()
    bookie.stop()
    assert bookie.pid is None
    store.sync("/")
    assert lookup(store, ZNODES, bookie.bookie_id) is None
    bookie.start()
    assert lookup(store, ZNODES, bookie.bookie_id) is not None


def test_a_suspended_bookie_lives_and_does_nothing_until_it_is_resumed(bookie: LocalBookie) -> None:
    bookie.suspend()
    until(lambda: state_of(bookie.pid) == "T")
    bookie.resume()
    until(lambda: state_of(bookie.pid) != "T")


def test_a_bookie_can_be_added_and_has_a_new_id(own: LocalCluster, store: ZooKeeperStore) -> None:
    before = {bookie.bookie_id for bookie in own.bookies}
    added = own.add_bookie()
    assert added is own.bookies[-1]
    assert added.bookie_id not in before
    assert lookup(store, ZNODES, added.bookie_id) is not None


def test_a_bookie_that_may_not_start_is_reported_with_the_end_of_its_log(bookie: LocalBookie, store: ZooKeeperStore) -> None:
    bookie.stop()
    cookie = store.get(ZNODES.cookie(bookie.bookie_id)).value
    store.delete(ZNODES.cookie(bookie.bookie_id), ANY_VERSION)
    with pytest.raises(ProcessFailedError, match=r"ended with exit status 1 before it was ready") as caught:
        bookie.start()
    assert f"{bookie.bookie_id} has no cookie" in str(caught.value)
    assert str(bookie.log) in str(caught.value)
    store.create(ZNODES.cookie(bookie.bookie_id), cookie)
    bookie.start()


def test_zookeeper_can_be_stopped_and_started_under_running_bookies(own: LocalCluster) -> None:
    own.zookeeper.stop()
    assert own.zookeeper.pid is None
    own.zookeeper.start()
    with at(own.metadata_uri) as store:
        until(lambda: len(list_bookies(store, ZNODES)) == len(own.bookies))


def test_a_directory_used_again_has_the_same_bookies_metadata_and_ports_but_for_one_that_is_taken(tmp_path: Path) -> None:
    with LocalCluster(bookies=1, data_dir=tmp_path, start_bookies=False) as cluster:
        assert cluster.bookies[0].pid is None
        added = cluster.add_bookie()
        with at(cluster.metadata_uri) as store:
            store.create("/ledgers/mine", b"kept")
    kept = cluster.bookies[0]
    with socket.create_server(("127.0.0.1", added.port)), LocalCluster(bookies=1, data_dir=str(tmp_path)) as again:
        assert again.metadata_uri == cluster.metadata_uri
        assert again.bookies[0].address == kept.address
        assert (again.bookies[1].bookie_id, again.bookies[1].data_dir) == (added.bookie_id, added.data_dir)
        assert again.bookies[1].port != added.port
        assert len({bookie.bookie_id for bookie in again.bookies}) == 2
        assert_serves_whole(again)
        with at(again.metadata_uri) as store:
            assert store.get("/ledgers/mine").value == b"kept"
        pids = [process.pid for process in [again.zookeeper, *again.bookies]]
    assert not any(is_alive(pid) for pid in pids)


def assert_serves_whole(cluster: LocalCluster) -> None:
    """As it has to when its constructor returns."""
    assert parse_uri(cluster.metadata_uri) == (cluster.zookeeper.address, "/ledgers")
    with at(cluster.metadata_uri) as store:
        registered = {(found.bookie_id, f"{found.address.host}:{found.address.port}") for found in list_bookies(store, ZNODES)}
    assert registered == {(bookie.bookie_id, bookie.address) for bookie in cluster.bookies}
    assert all(accepts(bookie) for bookie in cluster.bookies)
    assert len({bookie.data_dir for bookie in cluster.bookies}) == len(cluster.bookies)
    assert all(is_alive(process.pid) for process in [cluster.zookeeper, *cluster.bookies])


def at(uri: str) -> ZooKeeperStore:
    return connect(uri, connect_timeout_s=10.0, session_timeout_s=10.0)


def test_a_directory_in_use_is_refused(own: LocalCluster) -> None:
    with pytest.raises(ConfigError, match="another local cluster uses it"):
        LocalCluster(bookies=0, data_dir=own.data_dir)


FORKED = """
import os, sys, time
from dataclasses import replace
from pathlib import Path
from bk_spark.local.cluster import LocalCluster
from bk_spark.local.process import Keeper
cluster = LocalCluster(0, sys.argv[1])
forked = os.fork()
forked or time.sleep(300)
try:
    cluster.close()
    Keeper(Path(sys.argv[1]), temporary=False).kill_all()
finally:
    os.kill(forked, 9)
"""


def test_a_forked_child_does_not_keep_the_directory_in_use(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORKED, str(tmp_path)], check=True, timeout=DEADLINE_S)


def test_a_closed_cluster_and_its_processes_stay_closed_and_a_temporary_directory_is_removed() -> None:
    cluster = LocalCluster(bookies=0)
    former = cluster.zookeeper.pid
    assert is_alive(former)
    cluster.close()
    cluster.close()
    assert not is_alive(former)
    assert not cluster.data_dir.exists()
    with pytest.raises(ConfigError, match="closed: make a new LocalCluster"):
        cluster.add_bookie()
    with pytest.raises(ConfigError, match="closed: make a new LocalCluster"), cluster:
        pass
    assert cluster.zookeeper.pid is None
    with pytest.raises(ConfigError, match="nothing can be started in it any more"):
        cluster.zookeeper.start()


@pytest.mark.parametrize("bookies", [-1, True, "3", 1.5, None])
def test_a_wrong_number_of_bookies_is_refused(bookies: object) -> None:
    with pytest.raises(ConfigError, match=r"bookies is .*whole number"):
        LocalCluster(bookies=bookies)  # type: ignore[arg-type]


def test_a_state_file_of_a_newer_version_is_refused_and_nothing_is_left_running(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"version": 2}')
    with pytest.raises(FormatVersionError, match=r"cluster.json has format version 2"):
        LocalCluster(bookies=0, data_dir=tmp_path)
    (tmp_path / "cluster.json").write_text('{"vers')
    with pytest.raises(CorruptionError, match=r"cluster.json is damaged"):
        LocalCluster(bookies=0, data_dir=tmp_path)
    with Keeper(tmp_path, temporary=False):  # which has what a cluster's processes would keep from it
        pass


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="it cannot be made"):
        LocalCluster(bookies=0, data_dir=tmp_path / "file" / "below")


def test_a_failed_start_leaves_no_process_and_no_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(local_cluster, "bookie_command", lambda *_: [sys.executable, "-c", "raise SystemExit('no luck')"])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ProcessFailedError, match="no luck"):
        LocalCluster(bookies=1)
    assert list(tmp_path.iterdir()) == []


def test_java_is_named_with_the_way_to_install_it_where_it_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"Java 17 or newer.*apt install openjdk-17-jre-headless"):
        LocalCluster(bookies=0)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=f"JAVA_HOME is '{tmp_path}'"):
        find_java()


def test_java_home_goes_before_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == str(tmp_path / "bin" / "java")


def test_pyspark_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match="pip install pyspark"):
        find_zookeeper_jars()


def test_finding_the_jars_does_not_import_pyspark() -> None:
    code = "import sys; from bk_spark.local.zookeeper_server import find_zookeeper_jars as f; f(); "
    code += "sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


OWNER = """
import json, os, sys, threading, time
from bk_spark.local.cluster import LocalCluster
made = []
starter = threading.Thread(target=lambda: made.append(LocalCluster(bookies=int(sys.argv[2]))))
starter.start()
starter.join()
cluster = made[0]
suspended = cluster.bookies[0] if cluster.bookies else cluster.zookeeper
suspended.suspend()
forked = os.fork() if sys.argv[1] == "forked" else 0
if sys.argv[1] == "forked" and forked == 0:
    time.sleep(300)
pids = [cluster.zookeeper.pid, suspended.pid, cluster._keeper._process.pid]
print(json.dumps([str(cluster.data_dir), pids, forked]), flush=True)
sys.stdin.read()
os._exit(0)
"""


@pytest.mark.parametrize(("end", "bookies"), [("killed", 0), ("forked", 1), ("exit", 0)])
def test_nothing_outlives_the_owner_however_it_ends(end: str, bookies: int) -> None:
    """SIGKILL; SIGKILL with a forked child that holds the pipe; exit without clean-up.

    One process is suspended, and the cluster was started from a thread that has ended.
    """
    owner = subprocess.Popen([sys.executable, "-c", OWNER, end, str(bookies)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert owner.stdin is not None
    assert owner.stdout is not None
    data_dir, pids, forked = json.loads(owner.stdout.readline())
    try:
        assert all(is_alive(pid) for pid in pids)
        assert Path(data_dir).exists()
        os.kill(pids[-1], signal.SIGHUP)  # as the kernel does to a group that loses its owner while a member is suspended
        if end in ("killed", "forked"):
            owner.kill()
        owner.stdin.close()
        owner.wait(DEADLINE_S)
        until(lambda: not any(is_alive(pid) for pid in pids))
        until(lambda: not Path(data_dir).exists())
    finally:
        owner.kill()
        owner.stdout.close()
        if forked:
            os.kill(forked, signal.SIGKILL)


def tasks(cluster: LocalCluster) -> list[str]:
    return os.listdir(f"/proc/{cluster.zookeeper.pid}/task")


def accepts(bookie: LocalBookie) -> bool:
    try:
        socket.create_connection(("127.0.0.1", bookie.port), timeout=1.0).close()
    except OSError:
        return False
    return True


def state_of(pid: int | None) -> str:
    """The state letter in /proc, "" where there is no such process. Z, X: ended, and init has not collected it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def is_alive(pid: int | None) -> bool:
    return state_of(pid) not in ("", "Z", "X")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)
