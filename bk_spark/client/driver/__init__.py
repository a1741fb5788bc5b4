"""The driver that runs the state machines of ``protocol``: the event loop, connections to bookies, and the runner.

Imports ``protocol``, the wire messages and grpc. Begin with ``runner.py``, which runs one state machine;
``client_context.py`` is what all state machines of a client share.
"""
