"""What stands in ZooKeeper, in Apache BookKeeper's layout, and how it is reached.

Imports ``config`` and ``entries``. Begin with ``store.py``, the interface, and ``znodes.py``, the paths.
"""
