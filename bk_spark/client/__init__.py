"""The client of ledgers. Logs (``bk_spark.log``), topics (``bk_spark.topic``) and replication are built on it.

Imports the shared packages, never ``bookie`` or ``datasource``. Each folder imports only those before it:
``protocol`` (pure state machines), ``driver`` (carries them out), ``ledger`` (handles). Begin with ``ledger/write_handle.py``.
"""
