"""``bk-spark bookie rebuild-index``."""

from __future__ import annotations

import argparse
from pathlib import Path

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import REAL_DISK
from bk_spark.bookie.identity.cookie import locked
from bk_spark.bookie.identity.identity import examine_alone
from bk_spark.bookie.inspection.rebuild_index import rebuild_index
from bk_spark.commands.output import ProgressBar, print_record, print_records, say
from bk_spark.commands.settings import bookie_config


def run(args: argparse.Namespace) -> None:
    """Rebuild the index of a stopped bookie; what was damaged and skipped comes first, then the totals.

    From all of its directories or not at all: copies that the new index does not know of are deleted by the next start.
    """
    directories = Directories.of(Path(args.data_dir), bookie_config(args))
    with locked(directories.roots, REAL_DISK):
        identity = examine_alone(directories, REAL_DISK)
        for mismatch in identity.mismatches:
            raise mismatch.error
        with ProgressBar() as progress:
            report = rebuild_index(directories, identity.bookie_id, REAL_DISK, progress.show)
    skipped = [
        {"skipped": str(damage.path), "offset": damage.offset, "end": damage.end, "problem": damage.problem}
        for damage in report.damages
    ]
    if skipped:
        print_records(skipped, ["skipped", "offset", "end", "problem"], as_json=args.json)
    totals = {"files": report.files, "rows": report.rows, "journal_records": report.journal_records}
    print_record({**totals, "skipped_places": len(skipped)}, as_json=args.json)
    say("the next start is in limbo until what may be missing was read from the other replicas")
