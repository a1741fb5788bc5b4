"""The dashboard: the cluster as a read-only web page, ``bk-spark dashboard``.

Imports the client, the metadata store and telemetry. Begin with ``collector.py``, which decides what is read and when;
``cluster.py``, ``ledgers.py`` and ``logs.py`` read it, ``snapshots.py`` keeps it, ``server.py`` serves it with the page.
"""
