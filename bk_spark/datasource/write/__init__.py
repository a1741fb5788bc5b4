"""Batch and stream writes of the data source: a ledger for each task attempt, one commit for the job.

Imports the client, row payloads and the options. Begin with ``writer.py``; tasks run ``task_attempt.py``.
"""
