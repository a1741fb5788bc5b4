"""Repairs this bookie from the other replicas: ends limbo after a possible loss, and replaces damaged records.

Imports the bookie and its storage, but no client: the command that starts a bookie passes in an object that reads from its
peers. Begin with ``integrity.py``.
"""
