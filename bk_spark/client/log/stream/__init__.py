"""What a stream reads between two positions of a log, and where it stands.

Imports ``stored`` and ledger handles. Begin with ``positions.py``, then ``follow.py``.
"""
