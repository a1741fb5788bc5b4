"""Connections to Apache BookKeeper's bookies, which stand in for those to ours: the state machines see no difference.

Imports the driver's ``connections`` and ``wire.apache``. Begin with ``bookie.py``.
"""
