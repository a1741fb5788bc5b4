"""The parts of a writer, which ``add_entries.py`` joins: its life, its batches, its ensemble and its close. Pure.

Imports the vocabulary of state machines, updates of metadata and what bookies owe. Begin with ``writer_states.py``.
"""
