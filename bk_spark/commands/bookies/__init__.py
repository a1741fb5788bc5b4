"""``bk-spark bookie``: one bookie's files, its process, and what an operator asks of running bookies.

Imports what the other commands share. Begin with ``bookie.py``; ``bookie_start.py`` is all that a bookie's process imports.
"""
