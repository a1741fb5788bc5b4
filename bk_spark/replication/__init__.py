"""Replication: the auditor finds ledgers that lack copies, workers make the copies, and bookies are decommissioned.

Four words, one meaning each. *Replication* is this subsystem. A ledger or fragment is *re-replicated* (``Rereplicator``,
``LedgerRereplication``, and the state machine ``RereplicateFragment``). For that, batches of entries are *copied* to new
bookies, and then a bookie is *replaced* in an ensemble: the ledger's metadata names a new bookie in its slot.

Imports ``bookkeeper.py`` and all below it. Begin with ``autorecovery.py``, the process; ``ledger_rereplication.py``
re-replicates one ledger.
"""
