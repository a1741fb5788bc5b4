"""Topics of Pulsar as batches and streams of Spark.

Imports ``bk_spark.topic`` and what reads of logs share. Begin with ``reading.py``. Ref: DESIGN.md, "Topics of Pulsar".
"""
