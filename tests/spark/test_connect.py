"""Spark Connect, for batches: the client needs no BookKeeper, server and executors do all the work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.local.cluster import LocalCluster
from tests.checkout import ROOT
from tests.unit.datasource.batches import numbers_of

APPLICATION = Path(__file__).with_name("connect_app.py")


@pytest.mark.timeout(240)
def test_logs_are_written_and_read_through_spark_connect_once_the_package_is_there(
    cluster: LocalCluster, bookkeeper: BookKeeper, tmp_path: Path, log: str
) -> None:
    """Installed on the server it is found; here, where it is not, the client sends it as an artifact and registers it."""
    # SPARK_TESTING: a free port for the server.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1"}
    command = [sys.executable, str(APPLICATION), str(ROOT), cluster.metadata_uri, str(tmp_path), log]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=230)
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["session"].startswith("pyspark.sql.connect")
    assert found["odd"] == 500
    assert found["rows"] == list(range(1000)) == numbers_of(bookkeeper, log)
    assert found["compacted"] == [2, 1, 1000]
    assert "there is no log 'nobody': 'bk-spark log list' shows what there is" in found["refusal"]
    assert "Traceback" not in found["refusal"]
