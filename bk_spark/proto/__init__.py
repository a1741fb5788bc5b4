"""The contracts as ``.proto`` files, and the code that is generated from them (``make proto``).

Imports nothing of ours. Begin with ``bookie.proto``, the service of a bookie; the other two are Apache BookKeeper's
layouts in ZooKeeper.
"""
