"""The dashboard: the cluster as a read-only web page, ``bk-spark dashboard``.

Imports the client, the metadata store and telemetry. Begin with ``collector.py``, which decides what is read and when;
``cluster.py``, ``ledgers.py``, ``logs.py`` and ``tiers.py`` read it, ``snapshots.py`` keeps it. ``bookies.py``, ``advice.py``
and ``space.py`` make of it what is shown of bookies. ``server.py`` serves it with the page, whose scripts are beside it.
"""
