"""Tools over the files of a bookie that need not run: what log files and index hold, a check before a start, a new index.

Imports ``log_files``, ``index`` and ``identity``; only the commands import it. Begin with ``sanity.py``.
"""
