"""What the command line does if what it prints cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_one_line_and_exit_code_1(tmp_path, unbuffered: str) -> None:
    command = [sys.executable, "-m", "bk_spark.cli", "inspect", "mark", "--data-dir", str(tmp_path), "--json"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": unbuffered}
        )
    assert done.returncode == 1
    assert (
        done.stderr
        == "bk-spark: what is printed cannot be written: No space left on device (if it was to change something, it has)\n"
    )


def _program(redirected: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command with streams that a shell leaves as ``redirected`` says."""
    command = ["bash", "-c", f'"$@" {redirected}', "bash", sys.executable, "-m", "bk_spark.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("redirected", "code"), [(">&-", 0), (">&- 2>&- <&-", 0), ("| true; exit ${PIPESTATUS[0]}", 141)])
def test_streams_that_are_closed_or_without_a_reader_are_no_traceback(tmp_path, redirected: str, code: int) -> None:
    done = _program(redirected, "inspect", "mark", "--data-dir", str(tmp_path), "--json")
    assert done.returncode in {code, 0}  # a reader may end after it was given all
    assert done.stderr == ""


def test_a_failure_is_told_as_one_whatever_stdout_is(tmp_path) -> None:
    done = _program(">&-", "inspect", "mark", "--data-dir", str(tmp_path / "none"))
    assert done.returncode == 1
    assert done.stderr.startswith("bk-spark: ")
    assert done.stderr.count("\n") == 1
