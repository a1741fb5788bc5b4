"""Batch and stream reads of the data source: plan on the driver, read in a task, micro-batches.

Imports the client, row payloads and the options. Begin with ``reader.py`` for batches, ``stream_reader.py`` for
streams.
"""
