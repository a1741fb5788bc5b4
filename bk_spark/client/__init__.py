"""The client: ledgers and logs as applications hold them.

Imports the shared packages, never ``bookie`` or ``datasource``. Each folder imports only those before it:
``protocol`` (pure state machines), ``driver`` (carries them out), ``ledger`` (handles), ``log``, then
``bookkeeper.py``, which joins them, and ``replication``, which uses it. Begin with ``bookkeeper.py``.
"""
