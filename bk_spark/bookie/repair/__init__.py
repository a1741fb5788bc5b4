"""Damage and loss mended from the other replicas: limbo ended after a possible loss, and damaged records replaced.

Imports the bookie and its storage, and no client: the command that starts a bookie hands in an object that reads from
peers. Begin with ``integrity.py``.
"""
