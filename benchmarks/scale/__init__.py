"""How does each operation grow with the cluster? ``python -m benchmarks.scale --help``.

A cluster is made at two sizes: ZooKeeper with so many ledgers and logs, written directly, and three bookies. Each operation
runs in a process of its own. Its wall time, CPU time, peak memory and requests to ZooKeeper are compared between the sizes: the
exponent of a figure is log(large / small) / log(ratio of what the operation works on). 1 is linear, 0 does not grow.

``made_cluster`` starts and fills a cluster, ``measured`` is what one operation used, ``operations`` has them by subject,
``table`` is what comes out.
"""
