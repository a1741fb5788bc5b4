"""The bookie: the server that keeps the entries of ledgers on its disks.

Imports the shared packages, never ``client``. Only ``disk.py`` calls the file system. Above it are ``log_files``, ``index`` and
``storage``; ``identity`` checks which bookie the disks belong to; ``bookie.py`` answers requests without threads, clocks or
sockets; ``server`` adds gRPC, ``repair`` and ``space`` are the background work, and ``process`` runs all of it. Begin with
``bookie.py``.
"""
