"""Logs: named, ordered lists of ledgers with versions.

Imports ``ledger`` and the metadata store. Begin with ``log.py``, what applications hold, and ``log_store.py``, the
way in. ``stored`` is what stands in the metadata store, ``changes`` are commits and write jobs, ``stream`` is how
streams read, ``leader`` appends, ``cleanup`` gives space back.
"""
