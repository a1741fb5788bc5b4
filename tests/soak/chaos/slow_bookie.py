"""A bookie process whose disk can be made slow: ``bk-spark bookie start``, with a pause before each sync.

The file ``<data-dir>/../sync-delay-ms`` says how long; without it syncs are as fast as the disk is.
"""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import replace
from pathlib import Path

from bk_spark.bookie.disk import AppendFile
from bk_spark.cli import main
from bk_spark.config import BookieConfig
from bk_spark.local.cluster import bookie_command

DELAY_FILE = "sync-delay-ms"

CONFIG = {
    "session_timeout_s": 2.0,
    "journal_file_bytes": 300_000,
    "entry_log_file_bytes": 2_000_000,
    "write_cache_bytes": 200_000,
    "checkpoint_bytes": 1_000_000,
}
"""Small, so that files are rolled and checkpoints run in every round, and dead bookies leave the list within seconds."""


def delay_file(data_dir: Path) -> Path:
    return data_dir.parent / DELAY_FILE


def slow_bookie_command(data_dir: Path, metadata_uri: str, port: int, config: BookieConfig) -> list[str]:
    """In place of bk_spark.local.cluster.bookie_command."""
    command = bookie_command(data_dir, metadata_uri, port, replace(config, **CONFIG))
    return [sys.executable, "-P", "-m", "tests.soak.chaos.slow_bookie", *command[command.index("start") + 1 :]]


def _make_syncs_slow(file: Path) -> None:
    quick = AppendFile.sync

    def sync(self: AppendFile) -> None:
        if self.synced < self.size:
            with contextlib.suppress(FileNotFoundError):
                time.sleep(int(file.read_text()) / 1000)
        quick(self)

    AppendFile.sync = sync  # type: ignore[method-assign]


if __name__ == "__main__":
    _make_syncs_slow(delay_file(Path(sys.argv[sys.argv.index("--data-dir") + 1])))
    sys.exit(main(["bookie", "start", *sys.argv[1:]]))
