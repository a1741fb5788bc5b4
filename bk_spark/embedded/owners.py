"""Whose data a directory holds: a program that makes a data directory never makes it inside of another one.

Both would write there, and neither knows the other's files: garbage collection, a copy or a removal of the one takes the
other's along. Files that nobody here knows, such as a notebook beside the data, are no reason to refuse a directory.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

CLUSTER = "a local cluster"
BOOKIE = "a bookie"

_CLUSTER_FILE = "cluster.json"
_COOKIE_FILE = "cookie"
_COOKIE_START = b"bk_spark cookie"
_BOOKIE_FILES = ("journal/*.journal", "entry_log/*.log")
"""Of a bookie that has lost its cookie."""

_SIGNS = {"current/VERSION": "a bookie of Apache BookKeeper", "version-2": "ZooKeeper"}
"""What only this program's data directory holds → the program."""

MAX_PATH_BYTES = 467
"""Of a cluster's directory. SQLite opens files by paths of 512 bytes at most, which
``/bookie-100/data/index/ledgers.sqlite-journal`` ends."""

PARTS = re.compile(r"zookeeper|tls|(bookie|autorecovery)-\d+")
"""Directories that a local cluster makes in its own."""

MADE = re.compile(rf"{PARTS.pattern}|cluster\.json|lock|embedded\.\w+")
"""These, and the files that it or its host makes there."""


def owner_of(directory: Path) -> str:
    """Whose data directory it is, "" for nobody's. What cannot be read counts as nobody's: whoever uses it says so."""
    try:
        if (directory / _CLUSTER_FILE).exists():
            return CLUSTER
        if _is_cookie(directory / _COOKIE_FILE) or any(any(directory.glob(files)) for files in _BOOKIE_FILES):
            return BOOKIE
        return next((owner for name, owner in _SIGNS.items() if (directory / name).exists()), "")
    except OSError:
        return ""


def refusal_of_cluster(directory: Path) -> str:
    """Why no local cluster can be in ``directory``, an absolute path, which need not exist; "" if one can be, or is."""
    owner = owner_of(directory)
    if owner != CLUSTER and (refusal := _refusal_of_name(directory)):  # one that is there has found its paths short enough
        return refusal
    if owner not in ("", CLUSTER):
        return f"it is a data directory of {owner}: name a directory of its own for the cluster"
    for outer in directory.parents:
        part = directory.relative_to(outer).parts[0]
        owner = owner_of(outer)
        if owner == CLUSTER and PARTS.fullmatch(part):
            return f"it is a part of the local cluster in {outer}: name that one, or a directory elsewhere"
        if owner == BOOKIE:
            return f"it is inside of {outer}, a data directory of a bookie: name a directory elsewhere"
    return ""


def _refusal_of_name(directory: Path) -> str:
    name = os.fsencode(directory)
    if len(name) > MAX_PATH_BYTES:
        return f"its path has {len(name)} bytes, and a local cluster's {MAX_PATH_BYTES} at most: name another directory"
    try:
        name.decode()
    except UnicodeDecodeError:
        return "its path is not UTF-8 text, which ZooKeeper and the bookies need: name another directory"
    return ""


def _is_cookie(path: Path) -> bool:
    """Other programs have files of this name, too."""
    try:
        with path.open("rb") as file:
            return file.read(len(_COOKIE_START)) == _COOKIE_START
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False
