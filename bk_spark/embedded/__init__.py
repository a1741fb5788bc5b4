"""``embedded:DIR``: ZooKeeper and three bookies in a directory, shared by the processes of one machine that use it.

The first user starts a *host* process (local/embedded_host.py). Every user holds a connection to it (join.py), and may name
a process for which it uses the cluster, such as Spark's JVM. The host ends after the last one is gone, whatever ended that.

Imports the errors alone, for every client imports it. Begin with join.py.
"""
