"""What of a cluster its directory holds, and whether something is missing that must not be made anew.

Backups leave files out, and half of a restore is no cluster. Bookies' data without ZooKeeper's are entries of which nobody
knows to which ledger they belong; a new ZooKeeper in their place would make them foreign for good. Without ``cluster.json``
nothing says whether the directory is a copy that was made in use, which may lack confirmed rows: unknown is not "no".
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from bk_spark.bookie.identity.cookie_file import COOKIE_FILE
from bk_spark.errors import ConfigError
from bk_spark.local.place import ClusterDirectory, config_errors
from bk_spark.local.state import STATE_FILE, ClusterState, accept_command, check_snapshot, read_state

_BOOKIE = re.compile(r"bookie-(\d+)")
_ZOOKEEPER = Path("zookeeper/data/version-2")


def bookies_in(place: ClusterDirectory) -> list[tuple[int, Path]]:
    """The numbers and directories of the bookies that say that they are one, by a cookie. Raises ConfigError.

    One whose directory cannot be read counts: it says at its start what is wrong.
    """
    with config_errors(place.path):
        names = sorted(os.listdir(place.inside))
    found = [(int(match[1]), place.inside / match[0]) for match in map(_BOOKIE.fullmatch, names) if match]
    return [(number, path) for number, path in found if _may_exist(path / "data" / COOKIE_FILE)]


def whole_state(place: ClusterDirectory) -> ClusterState:
    """What the cluster keeps about itself, of a directory in which it may start, or which may be copied.

    Raises ConfigError for a copy that was made in use, and for bookies without ZooKeeper's data or ``cluster.json``;
    CorruptionError, FormatVersionError.
    """
    state = read_state(place)
    check_snapshot(state, place)
    check_zookeeper(place)
    if bookies_in(place) and not _may_exist(place.inside / STATE_FILE):
        remedy = (
            f"{STATE_FILE} is missing in it beside the data of bookies, so it may be a copy that was made while the "
            "original was in use, and lack confirmed rows: put back the directory as a whole, make a copy of the original "
            f"with 'bk-spark local copy FROM TO', or take it as it is with {accept_command(place)}"
        )
        raise ConfigError("data_dir", str(place.path), remedy)
    return state


def check_zookeeper(place: ClusterDirectory) -> None:
    """Raise ConfigError where bookies are and ZooKeeper's data are missing, or cannot be read."""
    if not bookies_in(place):
        return
    try:
        is_missing = not os.listdir(place.inside / _ZOOKEEPER)
    except (FileNotFoundError, NotADirectoryError):
        is_missing = True
    except OSError as problem:
        remedy = (
            f"{_ZOOKEEPER} in it cannot be read ({problem.strerror}): its owner has to start the cluster, or give it to you"
        )
        raise ConfigError("data_dir", str(place.path), remedy) from problem
    if is_missing:
        remedy = f"{_ZOOKEEPER} is missing in it, or empty, which says what its bookies hold: put it back, from the same backup"
        raise ConfigError("data_dir", str(place.path), remedy)


def holds_files(path: Path) -> bool:
    """Whether the directory is there, and not empty. One that cannot be read counts as such."""
    try:
        return bool(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _may_exist(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True
