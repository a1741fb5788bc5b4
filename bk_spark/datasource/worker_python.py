"""Which Python Spark's workers run: often another one than the driver's, which has no bk_spark.

Spark starts ``PYSPARK_PYTHON``, or else the first ``python3`` of PATH, also for a program that runs in a virtual environment
that is not activated. Then nothing of this package runs, and Spark says DATA_SOURCE_NOT_FOUND, or that a module is missing.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VARIABLE = "PYSPARK_PYTHON"
SETTING = "spark.pyspark.python"

DEFAULT = "python3"

ANSWER_S = 20.0
"""A Python that has not imported this package after this long does not work. It takes a second, on a busy machine a few."""

logger = logging.getLogger(__name__)


def use_this_python(spark: SparkSession) -> None:
    """Have the workers of ``spark`` run this process's Python, if nobody named one and the workers are on this machine.

    The Python of other machines lies at paths that are not known here. If the one that Spark would start here has no
    bk_spark, a warning says so: the driver starts it too. A session of Spark Connect has no workers here.
    """
    if not is_classic(spark):
        return
    context = spark.sparkContext
    if VARIABLE in os.environ or context.getConf().contains(SETTING) or context.pythonExec != DEFAULT or _is_found():
        return
    if str(context.master).startswith("local"):
        context.pythonExec = sys.executable
    elif (problem := why_unfit(DEFAULT)) is not None:
        logger.warning("Spark's workers run the first python3 of PATH, %s: set %s in the environment", problem, VARIABLE)


def is_classic(spark: SparkSession) -> bool:
    """Whether the driver of ``spark`` is this process. Sessions of Spark Connect are of another class."""
    from pyspark.sql import SparkSession

    return isinstance(spark, SparkSession)


def why_unfit(python: str) -> str | None:
    """Why a worker that runs ``python`` could not use the format; None if it can."""
    try_imports = [python, "-c", "import bk_spark, pyspark_bookkeeper"]
    try:
        done = subprocess.run(try_imports, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return f"which cannot be run ({problem})"
    return None if done.returncode == 0 else "which has no bk_spark"


def _is_found() -> bool:
    """Whether the first ``python3`` of PATH is this process's: a virtual environment is told by its directory alone."""
    found = shutil.which(DEFAULT)
    return found is not None and os.path.realpath(os.path.dirname(found)) == os.path.realpath(os.path.dirname(sys.executable))
