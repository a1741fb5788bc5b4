from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.checkout import ROOT
from tests.durations import recorded
from tests.durations.starts import Starts, count_start, kind_of
from tests.durations.table import Table


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (["/usr/bin/java", "-cp", "x.jar", "org.apache.zookeeper.server.ZooKeeperServerMain", "zoo.cfg"], "zookeeper"),
        (["java", "-cp", "x.jar", "Other"], "jvm"),
        (["/venv/pyspark/./bin/spark-submit", "pyspark-shell"], "spark"),
        (["python", "-P", "-X", "bk_spark=/tmp/a/bookie-12", "-m", "bk_spark.cli"], "bookie"),
        ([sys.executable, "-c", "pass"], "python"),
        (["sleep", "1"], None),
        ([], None),
    ],
)
def test_servers_are_known_by_their_commands(command: list[str], kind: str | None) -> None:
    assert kind_of(command) == kind


def test_each_start_is_counted_once() -> None:
    starts = Starts()
    Starts()
    starts.take()
    count_start("subprocess.Popen", (sys.executable, [sys.executable, "-c", ""], None, None))
    count_start("open", ("a", "r", 0))
    assert starts.take() == {"python": 1}
    assert starts.take() == {}


def test_a_run_is_added_up_by_worker_file_and_fixture() -> None:
    table = Table()
    table.began_s = 100.0
    table.add("a.py::one", "gw0", "setup", (103.0, 104.0), {})
    table.add("a.py::one", "gw0", "call", (104.0, 106.0), {})
    table.add("a.py::one", "gw0", "teardown", (106.0, 106.5), {"fixtures": {"cluster": 0.75}, "starts": {"bookie": 3}})
    table.add(
        "a.py::two",
        "gw1",
        "call",
        (102.0, 102.5),
        {"fixtures": {"cluster": 0.25}, "starts": {"bookie": 2, "jvm": 1}, "cpu_s": 0.5},
    )
    table.add("b.py::three", "gw1", "call", (103.5, 104.5), {})
    found = table.record(110.0)
    assert found["seconds"] == 10.0
    assert found["workers"] == {
        "gw0": {"before_s": 3.0, "busy_s": 3.5, "between_s": 0.0, "after_s": 3.5},
        "gw1": {"before_s": 2.0, "busy_s": 1.5, "between_s": 1.0, "after_s": 5.5},
    }
    assert found["files"] == {"a.py": [4.0, 0.5], "b.py": [1.0, 0.0]}
    assert found["cpu_s"] == 0.5
    assert found["fixtures"] == {"cluster": [1.0, 2]}
    assert found["starts"] == {"bookie": 5, "jvm": 1}
    assert list(found["tests"]) == ["a.py::one", "b.py::three", "a.py::two"]
    assert found["tests"]["a.py::one"]["setup"] == 1.0


@pytest.fixture
def forgotten() -> Iterator[None]:
    """What was read of the record before."""
    for known in (recorded._seconds, recorded.recorded_s):
        known.cache_clear()
    yield
    for known in (recorded._seconds, recorded.recorded_s):
        known.cache_clear()


def test_what_one_worker_runs_is_placed_by_what_it_took_when_it_was_recorded(forgotten, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(recorded, "RECORDED", tmp_path / "recorded.json")
    files = {"b.py": [3.4, 1.0], "a.py": [61.6, 2.0], "short.py": [2.9, 2.9]}
    apache = {"tests/interop/test_a.py": [5.0, 1.0], "tests/interop/test_b.py": [6.0, 1.0]}
    assert recorded.record({"files": files | apache}) == 4
    scopes = [recorded.scope_of(f"{file}::test_one[a::b]") for file in (*files, *apache)]
    assert scopes == [*files, "tests/interop/", "tests/interop/"]
    assert [recorded.recorded_s(scope) for scope in (*scopes, "new.py")] == [3, 62, 0, 11, 11, 0]


def test_one_worker_runs_what_shares_a_session_of_spark() -> None:
    files = ("tests/spark/test_a.py", "tests/spark/jobs/test_b.py", "tests/spark/test_examples.py")
    assert [recorded.scope_of(f"{file}::test_one") for file in files] == ["tests/spark/", "tests/spark/", files[2]]
    assert all((ROOT / file).exists() for file in recorded.ALONE)


def test_the_files_that_are_recorded_are_there(forgotten) -> None:
    assert [file for file in recorded._seconds() if not (ROOT / file).exists()] == []
