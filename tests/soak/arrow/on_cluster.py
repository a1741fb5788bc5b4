"""Cases on a real cluster, by every way in and out."""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bk_spark.local.cluster import LocalCluster
from tests.checkout import ROOT
from tests.soak.arrow.case import Case
from tests.soak.arrow.cluster_log import ClusterLog
from tests.soak.arrow.tiered_log import TieredLog
from tests.soak.arrow.ways import Ways


def run_case_on(ways: Ways, seed: int, *, is_tiered: bool = False) -> None:
    """One case, with a tier behind each append or without one. What is found names the ways that were gone."""
    log = (TieredLog if is_tiered else ClusterLog)(ways, random.Random(~seed))
    try:
        Case(seed, log).run()
    except Exception as problem:
        problem.add_note(f"ways in: {', '.join(log.trail)}")
        raise
    finally:
        log.delete()


@contextmanager
def on_a_cluster(*, is_with_spark: bool, is_tiered: bool = False) -> Iterator[Callable[[int], None]]:
    """Runs the case of a seed, on a cluster of its own."""
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(bookies=3))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="arrow-")))
        ways = Ways(cluster.metadata_uri, folder, stack.enter_context(_spark()) if is_with_spark else None)
        stack.callback(ways.close)
        yield lambda seed: run_case_on(ways, seed, is_tiered=is_tiered)


@contextmanager
def _spark() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.python.unix.domain.socket.enabled", "true").config("spark.sql.timeType.enabled", "true")
    # Else createDataFrame takes Arrow's timestamps without a time zone for those with one.
    builder = builder.config("spark.sql.timestampType", "TIMESTAMP_NTZ").config("spark.sql.session.timeZone", "UTC")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()
