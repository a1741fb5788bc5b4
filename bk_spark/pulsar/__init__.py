"""What Apache Pulsar stores in BookKeeper and ZooKeeper, as values and Arrow columns. Pure: no store, bookie, clock or thread.

Imports entries and the protobuf definitions. Begin with ``columns.py``, then ``messages.py``, which decodes entries.
Ref: docs/formats.md, "Pulsar's entries".
"""
