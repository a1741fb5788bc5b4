"""The measurement of growth runs, at its smallest size, so that none of its operations rots."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.scale import operations
from benchmarks.scale.operation import OPERATIONS
from tests.checkout import ROOT


def test_each_operation_is_measured_at_two_sizes(tmp_path: Path) -> None:
    operations.load()
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "benchmarks.scale", "--small", "--json", str(tmp_path / "grown.json")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=560, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = json.loads((tmp_path / "grown.json").read_text())
    assert {row["name"].partition(":")[0] for row in rows} == OPERATIONS.keys()
    assert len(done.stdout.splitlines()) == 2 + len(rows)
