"""The client's state machines, and nothing else: adds, reads, recovery, re-replication, placement.

They are pure: events and the time go in, commands come out. The package imports values of the wire and of ledger metadata; it
uses no clock, thread, socket, store or randomness. Begin with ``state_machine.py``, the vocabulary, then ``add_entries.py``,
which joins the parts of a writer from ``writer/``.
"""
