"""A whole cluster in simulated time: 10 to 1,000 bookies, up to 10 million ledgers, and what becomes of their copies.

``python -m benchmarks.simulated_cluster`` (``make scale``) plays the scenarios of ``scenarios.py`` and prints a table; with
``--page`` it writes docs/scale.md. One seed gives one result: there is one thread, one event loop whose time is simulated
(``virtual_loop.py``), and no other source of chance.

**What runs as it is shipped**: placement (``choose_ensemble`` and ``EnsembleChoice``), the choice of lost bookies
(``LostBookies``), the auditor's decision which ledgers to mark and how (``LedgerAudit.mark_page``, ``UnderReplication``), the
whole replication worker (``ReplicationWorker``, ``Rereplicator``, ``ReplicationLock``, ``LedgerRereplication``) and the state
machine of a fragment (``RereplicateFragment``), all on a metadata store in memory; and the plan of a balance (``BalancePlan``).

**What is modelled** (``costs.py`` has each number with its source): the time of requests to ZooKeeper, of a worker's CPU, of
disks and network. Each resource serves in turn, without gaps, so its bytes and seconds are exact and only their order is not.

**What is aggregated**: ledgers are rows of arrays (``ledger_table.py``), closed, of one fragment each; the metadata of one is
made when it is asked for. An audit's reading of the ledgers that name no lost bookie is a cost without content. A copy has no
entries: its bytes are taken from the resources. The first ensembles are drawn from samples of the shipped placement
(``layout.py``).

Begin with ``cluster.py``.
"""
