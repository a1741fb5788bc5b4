"""The client's state machines, and nothing else: adds, reads, recovery, re-replication, placement.

Pure: events and the time go in, commands come out. Imports values of the wire and of ledger metadata; no clock,
thread, socket, store or chance. Begin with ``state_machine.py``, the vocabulary, then ``add_entries.py``.
"""
