"""A log's tier: closed ledgers whose rows lie in the files of an open table, too.

Imports logs. Begin with ``tierer.py``, which carries out steps against the metadata store and the two ``ports.py``; ``plan.py``
decides what a step does. Ref: DESIGN.md, "Lake".
"""
