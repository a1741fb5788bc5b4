"""A local cluster for development and tests: ZooKeeper, bookies and AutoRecovery as processes of this machine.

May import both sides. Begin with ``cluster.py``.
"""
