"""Every benchmark runs, at its smallest size, so that none of them rots."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkout import ROOT

BENCHMARKS = sorted(path.name for path in (ROOT / "benchmarks").glob("*.py") if path.name not in ("run_all.py", "__init__.py"))


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_runs(name: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "benchmarks" / name), "--small"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=560, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout
