"""Copies of what lost bookies held: the auditor that notices, the workers that copy, and decommissioning.

Imports the whole client. Begin with ``autorecovery.py``, the process; ``ledger_rereplication.py`` copies one ledger.
"""
