"""The workloads of ``benchmarks.speed`` run, at their smallest size, so that none of them rots."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.speed.command import workloads_of
from benchmarks.speed.results import read
from tests.checkout import ROOT

NAMES = [one.name for one in workloads_of("benchmarks.speed")]
ALIKE = {
    "spark_write_1KiB",
    "spark_write_numeric",
    "spark_write_nested",
    "spark_read_100B",
    "spark_read_1KiB",
    "spark_read_nested",
}
"""These differ from another one in the table alone; each starts Spark, and takes half a minute of every run of the tests."""

GROUPS = sorted({name.partition("_")[0] for name in NAMES})


@pytest.mark.parametrize("group", GROUPS)
def test_the_workloads_run(group: str, tmp_path: Path) -> None:
    names = [name for name in NAMES if name.startswith(f"{group}_") and name not in ALIKE]
    done = _run(*names, "--small", "--json", str(tmp_path / "result.json"), "--directory", str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    report = read(tmp_path / "result.json")
    assert ([one.name for one in report.results], report.small, report.runs) == (names, True, 1)
    for result in report.results:
        assert {len(samples) for samples in result.samples.values()} == {1}
        assert all(sample.seconds > 0 for [sample] in result.samples.values())
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_a_command_that_is_ended_takes_all_that_it_started_with_it(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.speed", "client_tail", "--runs", "50", "--directory", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        _await(lambda: list(tmp_path.rglob("cluster.json")))
        child.send_signal(number)
        child.wait(60)
    _await(lambda: not _that_use(tmp_path))
    assert number == signal.SIGKILL or not list(tmp_path.iterdir())


def _await(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _that_use(directory: Path) -> list[str]:
    """Command lines that name it: all bookies, and ZooKeeper, are told where their files are."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_text())
    return [one for one in found if str(directory) in one]


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.speed", *arguments]
    return subprocess.run(command, cwd=ROOT, env=_environment(), capture_output=True, text=True, timeout=560, check=False)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
