"""A bookie of ours as Apache's tests want it: described by a JSON file, told by its input what happens to its disks.

Commands, a line each: ``full`` makes all disks look full, so that the bookie becomes read-only; ``free`` ends that, unless the
test wants it read-only from the start. The bookie stops when its input ends, for then the tests have gone. Its id is what the
tests call it, which names its host and port.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import Space
from bk_spark.bookie.identity import cookie
from bk_spark.bookie.identity.cookie_file import COOKIE_FILE
from bk_spark.bookie.process.disk_watch import Watermarks
from bk_spark.bookie.process.monitoring import MeasuredDisk
from bk_spark.bookie.process.run_bookie import BookiePlace, run_bookie
from bk_spark.metadata.registration import initialise_cluster, intended_root
from bk_spark.metadata.uri import parse_uri
from bk_spark.metadata.zookeeper import connect
from bk_spark.replication.peers import ClusterPeers
from bk_spark.telemetry.logging_setup import set_up_logging
from tests.apache_suite.settings import bookie_config, data_directory, is_read_only, metadata_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bk_spark.config import BookieConfig
    from bk_spark.metadata.znodes import Znodes
    from bk_spark.metadata.zookeeper import ZooKeeperStore


@dataclass(frozen=True)
class Wanted:
    """What a test wants of a bookie."""

    bookie_id: str
    host: str
    port: int
    settings: dict[str, str]
    """Names and values of Apache's."""
    tls: dict[str, str]
    """PEM files, if it is to speak TLS."""

    @classmethod
    def read(cls, file: Path) -> Wanted:
        data: dict[str, Any] = json.loads(file.read_text())
        return cls(data["bookie_id"], data["host"], int(data["port"]), data["settings"], data["tls"])


class SwitchableDisk(MeasuredDisk):
    """The real disk, which can be made to look so full that a bookie just takes the adds of recoveries."""

    def __init__(self, config: BookieConfig, *, always_full: bool) -> None:
        self._free_if_full = Watermarks.of(config).needed_bytes * 3 // 2
        self._always_full = always_full
        self.is_full = False

    def space(self, directory: Path) -> Space:
        space = super().space(directory)
        return Space(self._free_if_full, space.total_bytes) if self.is_full or self._always_full else space


def main() -> None:
    set_up_logging(False)
    wanted = Wanted.read(Path(sys.argv[1]))
    config = bookie_config(wanted.settings, wanted.tls, wanted.port)
    disk = SwitchableDisk(config, always_full=is_read_only(wanted.settings))
    threading.Thread(target=_obey, args=(disk,), daemon=True).start()
    with _cluster(wanted, config) as (store, znodes), ClusterPeers(store, znodes, config.client_config()) as peers:
        data_dir = data_directory(wanted.settings)
        if not (data_dir / COOKIE_FILE).exists():
            _format(Directories.of(data_dir, config), store, znodes, wanted.bookie_id)
        run_bookie(BookiePlace(data_dir, wanted.host, 0), store, znodes, config, disk=disk, peers=peers)


@contextmanager
def _cluster(wanted: Wanted, config: BookieConfig) -> Iterator[tuple[ZooKeeperStore, Znodes]]:
    """The root is made what a bookie expects if no other bookie was here yet."""
    uri = metadata_uri(wanted.settings)
    _, root = parse_uri(uri)
    with connect(uri, connect_timeout_s=config.connect_timeout_s, session_timeout_s=config.session_timeout_s) as store:
        znodes = intended_root(store, root, None)
        initialise_cluster(store, znodes)
        yield store, znodes


def _format(directories: Directories, store: ZooKeeperStore, znodes: Znodes, bookie_id: str) -> None:
    """With exactly this id: tests know bookies by host and port. Formatting would add a random suffix."""
    with mock.patch.object(cookie, "_new_id", lambda prefix, _: prefix):
        cookie.format_bookie(directories, store, znodes, bookie_id)


def _obey(disk: SwitchableDisk) -> None:
    for line in sys.stdin:
        disk.is_full = line.strip() == "full"
    os.kill(os.getpid(), signal.SIGTERM)
