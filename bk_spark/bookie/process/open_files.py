"""Warns of a bookie's files and directories that others on the machine may read or enter.

What a bookie makes is for its owner alone (disk.py). Wider ones are of an earlier version, or were widened, perhaps for a
backup that runs as another user: so they are left as they are.

Ref: docs/guide/secure.md, "Files".
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import Disk
from bk_spark.bookie.identity.cookie_file import COOKIE_FILE
from bk_spark.bookie.log_files.witness import WITNESS_FILE

logger = logging.getLogger(__name__)


def warn_of_open_files(directories: Directories, disk: Disk) -> None:
    """One line with all of them. What lies in a directory that others cannot enter is not looked at."""
    found = [str(path) for path in _made(directories) if disk.exists(path) and disk.is_open_to_others(path)]
    if found:
        logger.warning("others on this machine may read what this bookie stores: chmod -R go= %s", " ".join(found))


def _made(directories: Directories) -> Iterator[Path]:
    yield from dict.fromkeys((*directories.journals, *directories.entry_logs, directories.index))
    for root in directories.roots:
        yield root / COOKIE_FILE
    yield directories.data_dir / WITNESS_FILE
