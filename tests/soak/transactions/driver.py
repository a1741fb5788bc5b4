"""A driver whose stream writes into many logs: ``python -m tests.soak.transactions.driver URI CHECKPOINT [--drain]``.

Runs until it is killed; with ``--drain`` until it has read what there is. Prints a line for each batch that is done.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame, SparkSession

from bk_spark import register
from tests.checkout import ROOT
from tests.soak.transactions.rows import INTO, SOURCE

ROWS_A_BATCH = 200
REST_A_BATCH = 10_000
"""Of what is left when nobody is killed any more: on a slow machine that is most of the rows."""


def main() -> None:
    uri, checkpoint, drains = sys.argv[1], sys.argv[2], "--drain" in sys.argv
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    register(spark)
    rows = spark.readStream.format("bookkeeper").option("metadata", uri).option("startingOffsets", "earliest")
    named = into(rows.option("maxRowsPerTrigger", REST_A_BATCH if drains else ROWS_A_BATCH).load(SOURCE))
    sink = named.writeStream.format("bookkeeper").option("metadata", uri).option("logColumn", "into")
    sink = sink.option("createLogs", "true").option("checkpointLocation", checkpoint)
    trigger = {"availableNow": True} if drains else {"processingTime": "0 seconds"}
    query = sink.trigger(**trigger).start()
    print("started", flush=True)
    query.awaitTermination()


def into(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("id", f"concat('{INTO[0].rpartition('-')[0]}-', id % {len(INTO)}) AS into")


if __name__ == "__main__":
    main()
