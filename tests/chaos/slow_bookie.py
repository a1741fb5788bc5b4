"""A bookie process whose disk can be made slow: ``bk-spark bookie start``, with a pause before each sync.

The file ``<data-dir>/../sync-delay-ms`` says how long; without it syncs are as fast as the disk is.
"""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

from bk_spark.bookie.disk import AppendFile
from bk_spark.cli import main

DELAY_FILE = "sync-delay-ms"

SETTINGS = {
    "session-timeout-s": "2",
    "journal-file-bytes": "300000",
    "entry-log-file-bytes": "2000000",
    "write-cache-bytes": "200000",
    "checkpoint-bytes": "1000000",
}
"""Small, so that files are rolled and checkpoints run in every round, and dead bookies leave the list within seconds."""


def delay_file(data_dir: Path) -> Path:
    return data_dir.parent / DELAY_FILE


def slow_bookie_command(data_dir: Path, metadata_uri: str, port: int) -> list[str]:
    """In place of bk_spark.local_cluster.bookie_command."""
    options = ["--data-dir", str(data_dir), "--metadata", metadata_uri, "--port", str(port)]
    settings = [part for name, value in SETTINGS.items() for part in (f"--{name}", value)]
    return [sys.executable, "-P", "-m", "tests.chaos.slow_bookie", *options, *settings]


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
