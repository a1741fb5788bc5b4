"""``bk-spark orphans``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from bk_spark.client.log.cleanup.orphans import Orphan
from bk_spark.commands.connect import bookkeeper
from bk_spark.commands.output import ProgressBar, print_records, say


def list_(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client, ProgressBar() as progress:
        orphans = list(client.find_orphans(args.older_than_s, progress.show))
    _print(args, orphans)


def sweep(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client, ProgressBar() as progress:
        orphans = list(client.sweep_orphans(args.older_than_s, progress.show))
    _print(args, orphans)
    say(f"{len(orphans)} orphans were removed, with {sum(len(one.ledgers) for one in orphans)} ledgers")


def _print(args: argparse.Namespace, orphans: Iterable[Orphan]) -> None:
    records = [
        {
            "kind": one.kind.value,
            "log": one.log,
            "uid": one.uid,
            "job": one.job_id,
            "age_s": one.age_s,
            "ledgers": len(one.ledgers),
            "ledger_ids": list(one.ledgers),
        }
        for one in orphans
    ]
    print_records(records, ["kind", "log", "uid", "job", "age_s", "ledgers"], as_json=args.json)
