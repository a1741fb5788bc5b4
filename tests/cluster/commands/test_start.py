from __future__ import annotations

import subprocess
import sys


def test_a_bookie_that_starts_imports_nothing_of_logs_and_topics() -> None:
    """Which takes longer than all that it needs."""
    program = "import sys, bk_spark.commands.bookies.bookie_start; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "bk_spark.bookie.process.run_bookie" in loaded
    assert {"bk_spark.bookkeeper", "bk_spark.topic", "bk_spark.log.log_handle"} & set(loaded) == set()
