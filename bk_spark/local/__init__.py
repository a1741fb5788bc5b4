"""A local cluster for development and tests: ZooKeeper, bookies and AutoRecovery as processes of this machine.

May import both bookie and client. Begin with ``cluster.py``; ``embedded_host.py`` is the process behind ``embedded:DIR``.
"""
