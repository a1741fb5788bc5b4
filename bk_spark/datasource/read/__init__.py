"""Batch and stream reads of the data source: planned on the driver, read in the tasks.

Imports the client, row payloads and the options. Begin with ``reader.py`` for batches, ``stream_reader.py`` for
streams.
"""
