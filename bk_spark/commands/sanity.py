"""``bk-spark bookie sanity``."""

from __future__ import annotations

import argparse
from pathlib import Path

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import REAL_DISK
from bk_spark.bookie.identity.boot import possible_losses
from bk_spark.bookie.identity.cookie import locked
from bk_spark.bookie.identity.identity import Identity, examine, examine_alone
from bk_spark.bookie.inspection.sanity import check_directories, check_storage
from bk_spark.commands.connect import metadata_store
from bk_spark.commands.output import ProgressBar, print_records
from bk_spark.commands.settings import bookie_config
from bk_spark.config import ClientConfig
from bk_spark.errors import ConfigError


def run(args: argparse.Namespace) -> None:
    """Check a stopped bookie; raises ConfigError after the findings if something is wrong."""
    config = bookie_config(args)
    directories = Directories.of(Path(args.data_dir), config)
    with locked(directories.roots, REAL_DISK), ProgressBar() as progress:
        identity = _examine(args, directories, config.client_config())
        findings = [*check_directories(identity), *check_storage(directories, identity.bookie_id, config, progress.count)]
        wrong = sum(bool(one.problem) for one in findings)
        losses = () if wrong else possible_losses(identity, REAL_DISK)
    records = [{"check": one.check, "place": one.place, "state": one.problem or one.note or "right"} for one in findings]
    if not wrong:
        start = f"in limbo: {'; '.join(losses)}" if losses else "serves everything at once"
        records.append({"check": "next start", "place": identity.bookie_id, "state": start})
    print_records(records, ["check", "place", "state"], as_json=args.json)
    if wrong:
        raise ConfigError(f"bookie {identity.bookie_id}", f"{wrong} of {len(findings)} checks", "each says above what is wrong")


def _examine(args: argparse.Namespace, directories: Directories, client: ClientConfig) -> Identity:
    if not args.metadata:
        return examine_alone(directories, REAL_DISK)
    with metadata_store(args, client) as (store, znodes):
        return examine(directories, store, znodes, REAL_DISK)
