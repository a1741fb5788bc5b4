"""The dashboard: the cluster as a read-only web page, ``bk-spark dashboard``.

Imports the client, the metadata store and telemetry. Begin with ``collector.py``, which reads at a bounded rate what the page
shows; ``cluster.py``, ``ledgers.py`` and ``logs.py`` do single reads, ``snapshots.py`` keeps them, ``server.py`` serves page
and JSON.
"""
