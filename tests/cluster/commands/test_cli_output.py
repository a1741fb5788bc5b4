"""What the command line does if what it prints cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_one_line_and_exit_code_1(unbuffered: str) -> None:
    command = [sys.executable, "-m", "bk_spark.cli", "doctor", "--json"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": unbuffered}
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "bk-spark: what is printed cannot be written: No space left on device"
    assert "Traceback" not in done.stderr
