"""gRPC in front of a bookie: calls, the sync thread that stages and syncs, and limits of what clients may hold.

Imports the bookie, the wire messages and grpc. Begin with ``server.py``; ``sync_thread.py`` is the way of an add.
"""
