"""Changes of a log: write jobs, the one transaction that commits, and deletion.

Imports ``stored``. Begin with ``commit.py``; ``plan.py`` decides what a commit writes, without a store.
"""
