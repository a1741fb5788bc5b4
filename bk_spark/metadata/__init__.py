"""The data in ZooKeeper, in Apache BookKeeper's layout, and access to it.

Imports ``config`` and ``entries``. Begin with ``store.py``, the interface, and ``znodes.py``, the paths.
"""
