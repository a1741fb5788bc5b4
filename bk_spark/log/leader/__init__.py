"""The one writer that leads a log: how it takes over, appends, and rolls to new ledgers.

Imports ``log_store`` and ``ledger``; never ``cleanup``. Begin with ``roll_log.py``, the state machine, then
``log_write_handle.py``, the threads around it.
"""
