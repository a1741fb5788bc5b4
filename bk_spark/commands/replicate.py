"""``bk-spark replicate``, ``bk-spark bookie decommission`` and ``bk-spark bookie balance``: copies move to other bookies.

``replicate`` runs a Spark job. ``decommission`` and ``balance`` copy in this process: what one bookie holds, which is then
removed from the cluster, and from fuller bookies to emptier ones.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from dataclasses import asdict

from bk_spark.commands.arguments import (
    Commands,
    command,
    positive_count,
    positive_number,
    positive_size_bytes,
    valid_bookie_id,
)
from bk_spark.commands.connect import bookkeeper, metadata_uri
from bk_spark.commands.output import ProgressBar, Record, print_record, print_records, readable, say
from bk_spark.commands.settings import with_options
from bk_spark.errors import ConfigError
from bk_spark.replication.balance import MAX_BYTES, BalanceOptions, BookieFullness, balance
from bk_spark.replication.balance_plan import TOLERANCE
from bk_spark.replication.decommission import STOP_TIMEOUT_S, TIMEOUT_S, DecommissionOptions, decommission
from bk_spark.replication.settings import AutoRecoveryConfig

SHOWN = 20
"""Problems that are printed one by one; --json prints all."""

UNTOLD = "not told"
"""Printed where a bookie does not tell its space."""

REPLICATE_TEXT = (
    "copy everything that a bookie held which is gone for good to other bookies, as a Spark job: for very many ledgers, beside "
    "or instead of AutoRecovery. It ends when no ledger names the bookie, may be repeated after any failure, and leaves the "
    "bookie's cookie, which 'bk-spark bookie decommission BOOKIE_ID' then removes"
)
DECOMMISSION_TEXT = (
    "have other bookies take over everything that a bookie holds, then remove it from the cluster. It may be dead, or run: "
    "then it takes nothing new, and once its copies are made you are asked to stop it. May be ended and run again at any time"
)


BALANCE_TEXT = (
    "have bookies that are fuller than all together are on average give copies to emptier ones, so that bookies which joined "
    "later take their share: prints how full each one is, before and after. Fullness is what a bookie has of closed ledgers, "
    "by their metadata, over the space of its disks. May be ended and run again at any time. The disk of a bookie that gave "
    "copies gets its space back when its garbage collection looks for ledgers that moved away, once a day"
)


def add(commands: Commands) -> None:
    parser = command(commands, "replicate", "copy what a lost bookie held to other bookies, as a Spark job", _replicate)
    parser.description = REPLICATE_TEXT
    parser.add_argument(
        "bookie_id", type=valid_bookie_id, metavar="BOOKIE_ID", help="the lost bookie, as 'bk-spark ledger show ID' names it"
    )
    parser.add_argument("--master", default="local[*]", metavar="URL", help="where Spark runs the job (default %(default)s)")
    text = "also a bookie that is registered; make it read-only first, or writers choose it again"
    parser.add_argument("--force", action="store_true", help=text)
    _add_pace(parser, "a task copies", "is given to replace the bookie itself")


def add_decommission(group: Commands) -> None:
    parser = command(group, "decommission", DECOMMISSION_TEXT, _decommission)
    parser.add_argument(
        "bookie_id", type=valid_bookie_id, metavar="BOOKIE_ID", help="the bookie, as 'bk-spark bookie list' names it"
    )
    _add_pace(parser, "are copied", "is given, once the bookie is gone, to replace it itself")
    text = "seconds that a bookie which runs is waited for to be stopped (default %(default)s)"
    parser.add_argument("--stop-timeout-s", type=positive_number, default=STOP_TIMEOUT_S, metavar="S", help=text)
    text = "seconds after which it ends, with exit code 1, and names what is left (default %(default)s)"
    parser.add_argument("--timeout-s", type=positive_number, default=TIMEOUT_S, metavar="S", help=text)
    text = (
        "once the bookie is gone, remove it although ledgers still name it that no other bookie can give: names each, and what "
        "only that bookie held is lost for good"
    )
    parser.add_argument("--force", action="store_true", help=text)


def add_balance(group: Commands) -> None:
    parser = command(group, "balance", BALANCE_TEXT, _balance)
    text = "bytes that are moved at most, estimated (default %(default)s, also as 500g); run it again for more"
    parser.add_argument("--max-bytes", type=positive_size_bytes, default=MAX_BYTES, metavar="N", help=text)
    text = "a bookie gives copies if it is fuller than the mean by more than this share of it (default %(default)s)"
    parser.add_argument("--tolerance", type=positive_number, default=TOLERANCE, metavar="SHARE", help=text)
    text = "only print what would move, and how full bookies would be; changes nothing"
    parser.add_argument("--dry-run", action="store_true", help=text)
    _add_pace(parser, "are moved")


def _add_pace(parser: argparse.ArgumentParser, copied: str, grace: str = "") -> None:
    """The options that ``_recovery_config`` reads. ``copied`` and ``grace`` are parts of their help."""
    defaults = AutoRecoveryConfig()
    text = f"ledgers that {copied} at once (default %(default)s)"
    parser.add_argument("--parallel-ledgers", type=positive_count, default=defaults.parallel_ledgers, metavar="N", help=text)
    text = f"bytes that {copied} a second at most (default %(default)s, also as 50m)"
    default = defaults.replicate_bytes_per_s
    parser.add_argument("--bytes-per-s", type=positive_size_bytes, default=default, metavar="N", help=text)
    if grace:
        text = f"seconds that the writer of an open ledger {grace}; then the ledger is fenced and closed (default %(default)s)"
        grace_s = defaults.open_fragment_grace_s
        parser.add_argument("--open-grace-s", type=positive_number, default=grace_s, metavar="S", help=text)


def _recovery_config(args: argparse.Namespace) -> AutoRecoveryConfig:
    given = {
        "parallel_ledgers": args.parallel_ledgers,
        "replicate_bytes_per_s": args.bytes_per_s,
        **({"open_fragment_grace_s": args.open_grace_s} if "open_grace_s" in args else {}),
    }
    return with_options(lambda fields: AutoRecoveryConfig(**fields), given)


def _replicate(args: argparse.Namespace) -> None:
    """Run a Spark session of its own; ``bk_spark.datasource.jobs.rereplication.replicate_with_spark`` takes an existing one."""
    from bk_spark.datasource.jobs.rereplication import check_can_be_replicated, replicate_with_spark
    from bk_spark.datasource.jobs.spark_job import session

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    uri = metadata_uri(args)
    with bookkeeper(args) as client:
        check_can_be_replicated(client, args.bookie_id, force=args.force)  # before Spark starts, which takes seconds
        config = client.config
    recovery = _recovery_config(args)
    with session(args.master, show_progress=sys.stderr.isatty()) as spark, ProgressBar() as progress:
        report = replicate_with_spark(
            spark, uri, args.bookie_id, force=args.force, config=config, recovery=recovery, tell=progress.show
        )
    record = asdict(report)
    if not args.json:
        record = {**record, "nbytes": readable(report.nbytes), "problems": len(report.problems)}
        for problem in report.problems[:SHOWN]:
            say(problem)
    print_record(record, as_json=args.json)
    if report.problems:
        remedy = f"{len(report.problems)} ledgers still name it or may: see their problems, then run this again"
        raise ConfigError("the re-replicated bookie", args.bookie_id, remedy)


def _decommission(args: argparse.Namespace) -> None:
    options = DecommissionOptions(_recovery_config(args), args.stop_timeout_s, args.timeout_s, args.force)
    with bookkeeper(args) as client, ProgressBar() as progress:
        report = decommission(client, args.bookie_id, progress.show, options, say)
    left = report.given_up_ledgers
    named = f"{left} ledgers still name it, and lose what no other bookie holds" if left else "no ledger names it"
    record = {**asdict(report), "consequence": f"{named}, and its directories start no more"}
    record["given_up"] = [{"ledger_id": one.ledger_id, "problem": one.problem} for one in report.given_up]
    if not args.json:
        del record["given_up"]
    print_record(record, as_json=args.json)


def _balance(args: argparse.Namespace) -> None:
    name = f"balance of {socket.gethostname()}:{os.getpid()}"
    options = BalanceOptions(args.max_bytes, args.tolerance, _recovery_config(args), args.dry_run, name)
    with bookkeeper(args) as client, ProgressBar() as progress:
        report = balance(client, progress.show, options, say)
    records = [asdict(one) if args.json else _readable_fullness(one) for one in report.bookies]
    print_records(records, ["bookie_id", "mode", "rack", "capacity", "before", "after"], as_json=args.json)
    record: Record = {"mean": report.mean, "copies": report.copies, "nbytes": report.nbytes, "failed": report.failed}
    if not args.json:
        record = {**record, "mean": f"{report.mean:.1%}", "nbytes": readable(report.nbytes)}
    print_record({"dry_run": args.dry_run, **record}, as_json=args.json)


def _readable_fullness(one: BookieFullness) -> Record:
    held = {"before": (one.held_bytes, one.before), "after": (one.held_bytes_after, one.after)}
    return {
        **asdict(one),
        "capacity": UNTOLD if one.capacity_bytes is None else readable(one.capacity_bytes),
        **{
            name: readable(nbytes) if share is None else f"{readable(nbytes)}, {share:.1%}"
            for name, (nbytes, share) in held.items()
        },
    }
