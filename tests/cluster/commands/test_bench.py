"""``bk-spark bench``: what it measures, and that nothing of it stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from bk_spark.commands.bench import Latencies
from bk_spark.local.cluster import LocalCluster

HEEDING_SIGINT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Runs what it is given. A shell has what it starts in the background ignore SIGINT, tests included, and Python then does."""


@pytest.fixture(autouse=True)
def _environment(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BK_SPARK_METADATA", cluster.metadata_uri)


def _ledgers(cluster: LocalCluster) -> list[int]:
    with BookKeeper(cluster.metadata_uri) as client:
        return list(client.list_ledgers())


def _phases(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, float]]:
    assert main(["bench", "--json", *arguments]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_what_is_written_is_read_back_measured_and_deleted(capsys: pytest.CaptureFixture[str], cluster: LocalCluster) -> None:
    before = _ledgers(cluster)
    phases = _phases(capsys, "--entries", "250", "--entry-bytes", "100", "--batch", "100", "--seconds", "60")
    written, _, singly = phases
    assert [one["phase"] for one in phases] == ["write", "read", "read one"]
    assert [one["entries"] for one in phases] == [250, 250, 250]
    assert [one["bytes"] for one in phases] == [25_000, 25_000, 25_000]
    assert written["mb_per_s"] == pytest.approx(written["entries_per_s"] * 100 / 1e6, rel=0.01)
    for one in (written, singly):
        assert 0 < one["p50_ms"] <= one["p99_ms"] <= one["p999_ms"]
    assert _ledgers(cluster) == before


def test_a_rate_is_held_and_single_appends_are_measured_from_when_they_were_due(
    capsys: pytest.CaptureFixture[str],
) -> None:
    load = ("--entries", "50", "--rate", "50", "--batch", "1", "--entry-bytes", "4k")
    written = _phases(capsys, "--seconds", "60", *load)[0]
    assert (written["entries"], written["bytes"]) == (50, 50 * 4096)
    assert written["seconds"] >= 0.98


def test_a_run_ends_with_its_time_and_appends_once_at_least(capsys: pytest.CaptureFixture[str]) -> None:
    written = _phases(capsys, "--seconds", "0.5", "--rate", "20", "--batch", "1")[0]
    assert 0 < written["entries"] <= 10
    assert _phases(capsys, "--seconds", "0.0001", "--batch", "7")[0]["entries"] == 7


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_interrupted_deletes_its_ledger(cluster: LocalCluster, number: signal.Signals) -> None:
    before = _ledgers(cluster)
    command = [sys.executable, "-m", "bk_spark.cli", "bench", "--seconds", "100", "--rate", "100"]
    heeding = [sys.executable, "-c", HEEDING_SIGINT, *command]
    with subprocess.Popen(heeding, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as bench:
        assert bench.stderr is not None
        assert bench.stderr.readline().startswith("ledger ")
        assert len(_ledgers(cluster)) == len(before) + 1
        os.kill(bench.pid, number)
        assert (bench.wait(30), bench.stderr.read()) == (-number, "")
    assert _ledgers(cluster) == before


def test_a_run_does_not_import_pandas_which_would_lose_a_signal_that_comes_meanwhile(cluster: LocalCluster) -> None:
    code = "import sys; from bk_spark.cli import main; sys.exit(main(sys.argv[1:]) or 'pandas' in sys.modules)"
    command = [sys.executable, "-c", code, "bench", "--entries", "5", "--metadata", cluster.metadata_uri]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


def test_a_run_without_enough_bookies_fails_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--ensemble-size", "4"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_an_append_that_no_ledger_takes_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "--entry-bytes", "1m", "--batch", "100"])
    assert ended.value.code == 2
    assert "an append has 16777216 at most" in capsys.readouterr().err


def test_quantiles_are_told_within_one_per_cent() -> None:
    latencies = Latencies()
    assert latencies.quantile_s(0.5) is None
    for milliseconds in range(1, 1001):
        latencies.add(milliseconds / 1000)
    for part in (0.001, 0.5, 0.99, 0.999, 1.0):
        assert part <= latencies.quantile_s(part) <= part * 1.011  # type: ignore[operator]
    latencies.add(1e9)
    assert 1000 < (latencies.quantile_s(1.0) or 0) < 1e9
    latencies.add(0.0)
    assert latencies.quantile_s(0.0) == 1e-6
