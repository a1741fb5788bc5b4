"""The values of messages, typed by their topic's schema: from bytes to Arrow columns.

Imports the rest of ``bk_spark.pulsar``. Begin with ``typed_values.py``; the other files have a family of types each.
"""
