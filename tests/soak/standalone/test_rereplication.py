"""Re-replication by a Spark cluster whose executors are other processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.local.cluster import LocalCluster
from tests.soak.standalone.standalone import StandaloneSpark
from tests.spark.jobs.test_rereplication import LEDGERS, _filled, _kill, _naming, _read, client, own_cluster

__all__ = ["client", "own_cluster"]


@pytest.mark.timeout(400)
def test_the_command_runs_on_a_standalone_cluster_of_two_workers(
    own_cluster: LocalCluster, client: BookKeeper, tmp_path: Path
) -> None:
    lost = own_cluster.add_bookie()
    written = _filled(client, LEDGERS)
    _kill(client, lost)
    standalone = StandaloneSpark(tmp_path)
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.host 127.0.0.1\nspark.executor.memory 512m\n")
    try:
        command = [sys.executable, "-m", "bk_spark.cli", "replicate", lost.bookie_id, "--master", standalone.url]
        environment = {**os.environ, "BK_SPARK_METADATA": own_cluster.metadata_uri, "PYSPARK_PYTHON": sys.executable}
        environment["SPARK_CONF_DIR"] = str(tmp_path)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    finally:
        standalone.close()
    assert done.returncode == 0, done.stderr
    assert "problems" in done.stdout
    assert _naming(client, lost.bookie_id) == []
    assert {ledger_id: _read(client, ledger_id) for ledger_id in written} == written
