"""``bk-spark bookie decommission``."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from bk_spark.client.replication.decommission import STOP_TIMEOUT_S, DecommissionOptions, decommission
from bk_spark.client.replication.settings import AutoRecoveryConfig
from bk_spark.commands.arguments import positive_count, positive_number, positive_size_bytes
from bk_spark.commands.connect import bookkeeper
from bk_spark.commands.output import ProgressBar, print_record, say
from bk_spark.commands.parsers import Commands, command

TEXT = (
    "have other bookies take over everything that a bookie holds, then remove it from the cluster. It may be dead, or run: "
    "then it takes nothing new, and once its copies are made you are asked to stop it. May be ended and run again at any time"
)


def add(commands: Commands) -> None:
    defaults = AutoRecoveryConfig()
    parser = command(commands, "decommission", TEXT, run)
    parser.add_argument("bookie_id", metavar="BOOKIE_ID", help="the bookie, as 'bk-spark bookie list' names it")
    text = "ledgers that are copied at once (default %(default)s)"
    parser.add_argument("--parallel-ledgers", type=positive_count, default=defaults.parallel_ledgers, metavar="N", help=text)
    text = "bytes that are copied a second at most (default %(default)s, also as 50m)"
    default = defaults.replicate_bytes_per_s
    parser.add_argument("--bytes-per-s", type=positive_size_bytes, default=default, metavar="N", help=text)
    text = (
        "seconds that the writer of an open ledger is given, once the bookie is gone, to replace it itself; then the ledger is "
        "fenced and closed (default %(default)s)"
    )
    grace_s = defaults.open_fragment_grace_s
    parser.add_argument("--open-grace-s", type=positive_number, default=grace_s, metavar="S", help=text)
    text = "seconds that a bookie which runs is waited for to be stopped (default %(default)s)"
    parser.add_argument("--stop-timeout-s", type=positive_number, default=STOP_TIMEOUT_S, metavar="S", help=text)


def run(args: argparse.Namespace) -> None:
    recovery = AutoRecoveryConfig(
        parallel_ledgers=args.parallel_ledgers,
        replicate_bytes_per_s=args.bytes_per_s,
        open_fragment_grace_s=args.open_grace_s,
    )
    options = DecommissionOptions(recovery, args.stop_timeout_s)
    with bookkeeper(args) as client, ProgressBar() as progress:
        report = decommission(client, args.bookie_id, progress.show, options, say)
    consequence = "no ledger names it, and its directories start no more"
    print_record({**asdict(report), "consequence": consequence}, as_json=args.json)
