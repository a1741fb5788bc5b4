"""What is left of a cluster whose directory was removed while its processes still ran.

``rm -rf`` and a running bookie race: files that appear behind its back stay. They belong to no cluster any more, for nothing
says which: there is neither ``cluster.json`` nor a bookie's cookie. They would keep every later cluster out of the directory,
so they are moved aside. Nothing is deleted. A directory without data, such as the mount point of a disk for a bookie, is none.

A directory of such a name that holds more than a cluster puts there is another program's, such as ZooKeeper unpacked beside the
data: it is never moved, and the cluster goes elsewhere.
"""

from __future__ import annotations

import logging
import os
from itertools import count
from pathlib import Path

from bk_spark.errors import ConfigError
from bk_spark.local.contents import bookies_in, holds_files
from bk_spark.local.place import ClusterDirectory, config_errors, storage_errors
from bk_spark.local.state import STATE_FILE

_PATTERNS = ("zookeeper", "bookie-*")
_CONTENT = {"data", "log", "zookeeper.cfg"}
"""What a cluster puts into these."""

logger = logging.getLogger(__name__)


def set_remains_aside(place: ClusterDirectory) -> None:
    """Move them to ``remains-N``. Raises StorageError; ConfigError for what is another program's."""
    if (place.inside / STATE_FILE).exists() or bookies_in(place):
        return
    found = sorted(path for pattern in _PATTERNS for path in place.inside.glob(pattern) if holds_files(path / "data"))
    if not found:
        return
    foreign = next((path for path in found if _is_foreign(place, path)), None)
    if foreign is not None:
        remedy = f"{foreign.name!r} in it is another program's, and the cluster needs that name: name another directory"
        raise ConfigError("data_dir", str(place.path), remedy)
    name = next(name for name in (f"remains-{number}" for number in count(1)) if not (place.inside / name).exists())
    with storage_errors(place.path / name):
        (place.inside / name).mkdir()
        for path in found:
            path.rename(place.inside / name / path.name)
    logger.warning("what is left of a cluster that was removed was moved to %s", place.path / name)


def _is_foreign(place: ClusterDirectory, path: Path) -> bool:
    """Whether it holds more than a cluster puts there. Raises ConfigError if it cannot be read."""
    with config_errors(place.path / path.name):
        return not _CONTENT.issuperset(os.listdir(path))
