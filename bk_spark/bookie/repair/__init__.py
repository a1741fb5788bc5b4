"""Repairs this bookie from the other replicas: ends limbo after a possible loss, and replaces damaged records.

Imports the bookie and its storage, no client: the start command passes in an object that reads from peers. Begin with
``integrity.py``.
"""
