"""The command by which an operator has a bookie's cookies repaired, as it is typed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from bk_spark.bookie.directories import Directories

BOOKIE_ID = "BOOKIE_ID"
"""Stands for the id where no directory says it."""


def fix_command(bookie_id: str, directories: Directories, uri: str = "") -> str:
    """With every directory of the bookie, for each that is not named would be another mismatch. ``uri`` is the metadata's."""
    words = ["bk-spark", "cookie", "fix", bookie_id, "--data-dir", str(directories.data_dir.absolute())]
    for option, places in (("--journal-dirs", directories.journals), ("--ledger-dirs", directories.entry_logs)):
        if [place.parent for place in places] != [directories.data_dir]:
            words += [option, _joined(places)]
    if uri:
        words += ["--metadata", uri]
    return shlex.join(words)


def _joined(places: Sequence[Path]) -> str:
    return ",".join(str(place.parent.absolute()) for place in places)
