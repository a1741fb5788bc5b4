"""Logs: named, ordered lists of ledgers with versions.

Imports ``client.ledger``, the metadata store and ``rows``. Begin with ``log.py``, the handle for applications, and
``log_store.py``, the parts behind it. ``stored`` reads what the metadata store holds, ``changes`` has commits and write jobs,
``stream`` plans what streams read, ``leader`` appends, ``cleanup`` deletes what is no longer needed.
"""
