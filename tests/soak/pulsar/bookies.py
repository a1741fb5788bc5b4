"""Bookies under a broker: ours, or Apache's to tell faults of the harness and of Pulsar from faults of ours."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.bookkeeper_cluster import ApacheBookie, apache_bookies, java_command
from bk_spark.bookie.directories import ENTRY_LOG_DIRECTORY
from bk_spark.local.cluster import DEFAULT_BOOKIE_CONFIG, LocalCluster
from bk_spark.local.process import LocalProcess
from bk_spark.replication.settings import AutoRecoveryConfig
from tests.interop.apache import JAVA, SETTINGS, Kind, apache_cluster, uri
from tests.soak.chaos.faults import Bookie, start_again

COUNT = 3
LOST_GRACE_S = 20.0
"""Longer than a bookie is down that comes back."""

GC_S = 180.0

_APACHE = {
    **SETTINGS,
    "dbStorage_writeCacheMaxSizeMb": "8",
    "flushInterval": "2000",
    "gcWaitTime": "5000",
    "minorCompactionInterval": "10",
    "majorCompactionInterval": "20",
    "lostBookieRecoveryDelay": str(int(LOST_GRACE_S)),
}
"""Apache's bookies collect by themselves, so they are told to do it often."""


@dataclass(slots=True)
class Bookies:
    """A cluster of bookies whose members come and go."""

    metadata_uri: str
    """For our client."""
    living: list[Bookie]
    lost: list[str]
    """The ids of those that are gone for good."""
    may_end: bool
    """A bookie ends by itself when its AutoRecovery does: so do Apache's."""
    _add: Callable[[], Bookie]
    _collect: Callable[[str, Sequence[Bookie]], None]

    @property
    def pulsar_uri(self) -> str:
        """As Pulsar's setting ``bookkeeperMetadataServiceUri`` has it."""
        return self.metadata_uri.replace("zk://", "zk+hierarchical://")

    def revive(self, process: LocalProcess) -> None:
        """Start one that has ended."""
        assert isinstance(process, Bookie)
        start_again(process, self.metadata_uri)

    def lose(self, bookie: Bookie) -> None:
        """Kill it, with all that it stored."""
        bookie.kill()
        for directory in _directories(bookie):
            shutil.rmtree(directory)
        self.living.remove(bookie)
        self.lost.append(bookie.bookie_id)

    def add(self) -> Bookie:
        bookie = self._add()
        self.living.append(bookie)
        return bookie

    def collect(self) -> None:
        """Have the space of deleted ledgers given back; Apache's do that by themselves."""
        self._collect(self.metadata_uri, self.living)

    def stored_bytes(self) -> int:
        """In files of entries."""
        files = [file for one in self.living for file in _entry_logs(one)]
        return sum(file.stat().st_blocks * 512 for file in files if file.exists())


@contextlib.contextmanager
def our_bookies(directory: Path, entry_log_bytes: int) -> Iterator[Bookies]:
    """A file of entries that is full, at ``entry_log_bytes``, is the unit in which space is given back."""
    config = dataclasses.replace(
        DEFAULT_BOOKIE_CONFIG,
        entry_log_file_bytes=entry_log_bytes,
        write_cache_bytes=entry_log_bytes,
        checkpoint_bytes=entry_log_bytes,
    )
    with LocalCluster(COUNT, directory / "cluster", bookie_config=config) as cluster:
        cluster.start_autorecovery(AutoRecoveryConfig(lost_bookie_grace_s=LOST_GRACE_S))
        yield Bookies(cluster.metadata_uri, list(cluster.bookies), [], False, cluster.add_bookie, _collect)


@contextlib.contextmanager
def apaches_bookies(directory: Path, entry_log_bytes: int) -> Iterator[Bookies]:
    """Raises SkippedError where they are not to be had."""
    root, settings = directory / "apache", {**_APACHE, "logSizeLimit": str(entry_log_bytes)}
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(LocalCluster(0, directory / "cluster"))
        theirs = stack.enter_context(apache_cluster(ours, root, Kind(settings, bookies=COUNT)))
        metadata_uri, java = uri(ours, root), java_command(JAVA)

        def add() -> Bookie:
            place = directory / f"apache-{len(made.living) + len(made.lost) + 1}"
            (bookie,) = stack.enter_context(apache_bookies(made.pulsar_uri, place, settings, java, 1))
            bookie.start()
            return bookie

        made = Bookies(metadata_uri, list(theirs.bookies), [], True, add, lambda *_: None)
        yield made


def _collect(metadata_uri: str, bookies: Sequence[Bookie]) -> None:
    """A bookie removes a ledger when it has found it deleted twice."""
    for bookie in bookies:
        for _ in range(2):
            command = [sys.executable, "-m", "bk_spark.cli", "bookie", "gc", "run", bookie.bookie_id, "--wait"]
            subprocess.run([*command, "--metadata", metadata_uri], check=True, timeout=GC_S, stdout=subprocess.DEVNULL)


def _directories(bookie: Bookie) -> list[Path]:
    """All that is lost with a bookie's disk."""
    if isinstance(bookie, ApacheBookie):
        return [bookie.config.parent / "journal", bookie.config.parent / "ledgers"]
    return [bookie.data_dir]


def _entry_logs(bookie: Bookie) -> list[Path]:
    if isinstance(bookie, ApacheBookie):
        return list((bookie.config.parent / "ledgers" / "current").glob("*.log"))
    return list((bookie.data_dir / ENTRY_LOG_DIRECTORY).iterdir())
