"""What Spark's users see of our errors: the sentence, without the frames that led to it.

A Python process of Spark sends the JVM the traceback of the error that ends it, and the JVM puts that text into the exception
that the user gets. The frames are ours and Spark's, and say nothing about the user's program. PySpark leaves them out where
the variable ``SPARK_HIDE_TRACEBACK`` is set; it looks at the moment of the error.

Ref: ``handle_worker_exception`` in ``pyspark/util.py``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from bk_spark.errors import BookKeeperError

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"

logger = logging.getLogger(__name__)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Have Spark show an error of ours by its sentence alone. For each method that Spark calls; also a decorator.

    The traceback, with the causes, goes to the log at level DEBUG. Any other error is a defect, and keeps its traceback.

    Only a process that Spark started for its work is told to hide tracebacks. It ends with the error, so nothing else that
    runs in it, such as a user's function, loses a traceback. Another process would pass the variable on to its children.
    """
    try:
        yield
    except BookKeeperError as problem:
        logger.debug("an error that Spark shows without its traceback", exc_info=problem)
        if _is_worker():
            os.environ[HIDE_TRACEBACK] = "1"
        raise


def _is_worker() -> bool:
    """Whether Spark's JVM started this process: it says so to all of them, planners, tasks and the sources of streams."""
    return os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER"
