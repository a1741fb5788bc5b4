"""Python runs this file in each process that has its folder in ``PYTHONPATH``. Spark forks its Python processes from daemons,
and each imports what it uses, for half a second of CPU; with this file a daemon imports that once, for all of them.

What the processes run is as before: the examples of the guide run on a Spark without this file.
"""

import sys

UNHURRIED = "pyspark.sql.worker.lookup_data_sources"
"""The look-up imports little on purpose, and a test holds that."""


def _import_all(worker: str) -> None:
    import importlib
    import pkgutil

    import bk_spark.datasource

    names = [module.name for module in pkgutil.walk_packages(bk_spark.datasource.__path__, "bk_spark.datasource.")]
    for name in (worker, "pyspark_bookkeeper", "bk_spark.bookkeeper", *names):
        importlib.import_module(name)


if "pyspark.daemon" in sys.orig_argv and UNHURRIED not in sys.orig_argv:
    _import_all(sys.orig_argv[-1])
