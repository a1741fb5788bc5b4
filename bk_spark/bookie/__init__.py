"""The bookie: the server that keeps the entries of ledgers on its disks.

Imports the shared packages, never ``client``. ``disk.py`` alone calls the file system. On it stand ``logs``,
``index`` and ``storage``; ``identity`` says whose disks these are; ``bookie.py`` answers requests without threads,
clocks or sockets; ``server`` puts gRPC before it, ``process`` runs it all. Begin with ``bookie.py``.
"""
