"""Batch and stream writes of the data source: a ledger for each task attempt, one commit for the job.

Imports the client, row payloads and the options. Begin with ``writer.py``; ``task_attempt.py`` is what runs in a
task.
"""
