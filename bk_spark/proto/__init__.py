"""The protobuf contracts (``.proto`` files), and the code that ``make proto`` generates from them.

Imports nothing of ours. Begin with ``bookie.proto``, the service of a bookie; the other two are Apache BookKeeper's
layouts in ZooKeeper.
"""
