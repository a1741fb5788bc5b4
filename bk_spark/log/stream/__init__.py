"""What a stream reads between two positions of a log, and how far it has read.

Imports ``stored`` and ledger handles. Begin with ``positions.py``, then ``follow.py``.
"""
