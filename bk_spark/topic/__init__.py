"""Topics of Apache Pulsar, read from the bookies and from offloaded copies: nothing here changes, fences or recovers anything.

Imports ledgers, files and ``bk_spark.pulsar``. Begin with ``access.py``, which has all that the package may do to Pulsar; users
call ``topic.py``. Ref: DESIGN.md, "Topics of Pulsar".
"""
