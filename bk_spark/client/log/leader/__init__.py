"""The one writer that leads a log: leadership, rolling to new ledgers, appends.

Imports ``log_store`` and ``ledger``; never ``cleanup``. Begin with ``roll_log.py``, the state machine, then
``log_write_handle.py``, its threads.
"""
