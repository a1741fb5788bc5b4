"""``bk-spark orphans``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from bk_spark.client.log.cleanup.orphans import OLDER_THAN_S, Orphan
from bk_spark.commands.arguments import Commands, command, count, group_of
from bk_spark.commands.connect import bookkeeper
from bk_spark.commands.output import ProgressBar, print_records, say


def add(commands: Commands) -> None:
    group = group_of(commands, "orphans", "what writes that failed or were killed have left behind; no reader ever saw it")
    for name, text, handler in (
        ("list", "what a sweep would remove; changes nothing", _list),
        ("sweep", "remove it; writes that are running are told by their signs of life and stay", _sweep),
    ):
        parser = command(group, name, text, handler)
        text = "only what nobody has touched for N seconds (default %(default)s, a day); below 3600 stop all writers first"
        parser.add_argument("--older-than-s", type=count, default=OLDER_THAN_S, metavar="N", help=text)


def _list(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client, ProgressBar() as progress:
        orphans = list(client.find_orphans(args.older_than_s, progress.show))
    _print(args, orphans)


def _sweep(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client, ProgressBar() as progress:
        orphans = list(client.sweep_orphans(args.older_than_s, progress.show))
    _print(args, orphans)
    say(f"{len(orphans)} orphans were removed, with {sum(len(orphan.ledgers) for orphan in orphans)} ledgers")


def _print(args: argparse.Namespace, orphans: Iterable[Orphan]) -> None:
    records = [
        {
            "kind": orphan.kind.value,
            "log": orphan.log,
            "uid": orphan.uid,
            "job": orphan.job_id,
            "age_s": orphan.age_s,
            "ledgers": len(orphan.ledgers),
            "ledger_ids": list(orphan.ledgers),
        }
        for orphan in orphans
    ]
    print_records(records, ["kind", "log", "uid", "job", "age_s", "ledgers"], as_json=args.json)
