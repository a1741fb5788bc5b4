"""The cluster as a web page: ``bk-spark dashboard``. It only looks; nothing on it changes anything.

Imports the client, the metadata store and telemetry. Begin with ``collector.py``, which reads all that the page shows
at a bounded rate; ``cluster.py``, ``ledgers.py`` and ``logs.py`` are one look at each, ``snapshots.py`` keeps them
with their age, ``server.py`` serves page and JSON.
"""
