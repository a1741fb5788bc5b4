"""gRPC in front of a bookie: calls, the sync thread that stages and syncs, and limits on what clients may make it hold.

Imports the bookie, the wire messages and grpc. Begin with ``server.py``, then ``sync_thread.py``, where adds become durable.
"""
