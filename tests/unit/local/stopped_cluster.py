"""The state of a local cluster whose processes have ended, as far as a start or a copy looks at it."""

from __future__ import annotations

import os
from pathlib import Path

from bk_spark.local.place import ClusterDirectory
from bk_spark.local.state import ClusterState, read_state, write_state


def put_state(path: Path, bookie_ports: tuple[int, ...], *, mark: str = "", in_use: bool = False) -> None:
    """Without ``mark`` the cluster is the directory's own."""
    place = ClusterDirectory(path)
    locks = place.lock()
    write_state(place, ClusterState(2181, bookie_ports, mark=mark or place.mark, in_use=in_use))
    for lock in locks:
        os.close(lock)
    place.close()


def state_of(path: Path) -> ClusterState:
    place = ClusterDirectory(path)
    try:
        return read_state(place)
    finally:
        place.close()
