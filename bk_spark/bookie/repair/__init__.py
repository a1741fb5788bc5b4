"""Repairs this bookie from the other replicas: ends limbo after a possible loss, and replaces damaged records.

Imports the bookie, and no client: a parameter gives access to the peers. Begin with ``limbo_repair.py``.
"""
