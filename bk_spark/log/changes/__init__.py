"""Everything that changes a log: write jobs, the transaction that commits, and deletion.

Imports ``stored``. Begin with ``commit.py``; ``plan.py`` decides what a commit writes, without a store.
"""
