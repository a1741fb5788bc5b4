"""A Spark Connect client of test_connect.py: ``connect_app.py CHECKOUT METADATA_URI DIRECTORY LOG``. Prints what came of it.

The server is one that Spark starts on this machine. It does not find bk_spark by itself; the client does.
"""

from __future__ import annotations

import json
import shutil
import sys

CHECKOUT, URI, DIRECTORY, LOG = sys.argv[1:]
sys.path.insert(0, CHECKOUT)

from pyspark.sql import SparkSession  # noqa: E402

import bk_spark  # noqa: E402


def main() -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    spark.addArtifacts(shutil.make_archive(f"{DIRECTORY}/bk_spark", "zip", CHECKOUT, "bk_spark"), pyfile=True)
    bk_spark.register(spark)
    frame = spark.range(0, 1000, 1, 2)
    reader = spark.read.format("bookkeeper").option("metadata", URI)
    frame.write.format("bookkeeper").option("metadata", URI).mode("append").save(LOG)
    found = {"session": type(spark).__module__, "odd": reader.load(LOG).where("id % 2 = 1").count()}
    frame.write.format("bookkeeper").option("metadata", URI).mode("overwrite").save(LOG)
    spark.sql(f"CREATE TEMPORARY VIEW v USING bookkeeper OPTIONS (metadata '{URI}', path '{LOG}')")
    found["rows"] = [row.id for row in spark.sql("SELECT id FROM v").collect()]
    report = bk_spark.compact_log(spark, URI, LOG)
    found["compacted"] = [report.removed.ledgers, report.added.ledgers, reader.load(LOG).count()]
    try:
        reader.load("nobody").collect()
    except Exception as refused:
        found["refusal"] = str(refused).split("JVM stacktrace")[0]
    spark.stop()
    print(json.dumps(found))


main()
