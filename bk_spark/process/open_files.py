"""How many connections a server may have: each is an open file, and the process needs others."""

from __future__ import annotations

import resource

from bk_spark.errors import ConfigError

RESERVED_FILES = 512
"""For files that are not connections of clients: logs, the index, the metadata store, connections to bookies, and some more."""

LEAST_CONNECTIONS = 16
"""With fewer a server does not start: other servers, a few clients and an operator would already be too many."""


def most_connections(wanted: int, ports: int = 1) -> int:
    """As many of ``wanted`` for each port as the limit of open files allows: the process raises it as far as it may.

    Raises ConfigError if the process may not open as many files as a few connections need.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted * ports + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    found = wanted if soft == resource.RLIM_INFINITY else min(wanted, (soft - RESERVED_FILES) // ports)
    if found < LEAST_CONNECTIONS:
        least = RESERVED_FILES + LEAST_CONNECTIONS * ports
        remedy = f"raise it (ulimit -n) to {least} at least: a server needs a file for each connection"
        raise ConfigError("the limit of open files", soft, remedy)
    return found
