"""``bk-spark replicate``: what a lost bookie held is copied by a Spark cluster."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict

from bk_spark.client.replication.settings import AutoRecoveryConfig
from bk_spark.commands.arguments import positive_count, positive_number, positive_size_bytes
from bk_spark.commands.connect import bookkeeper, metadata_uri
from bk_spark.commands.output import ProgressBar, print_record, readable, say
from bk_spark.commands.parsers import Commands, command
from bk_spark.errors import ConfigError

SHOWN = 20
"""Problems that are told one by one; --json has them all."""

TEXT = (
    "copy everything that a bookie held which is gone for good to other bookies, as a Spark job: for very many ledgers, beside "
    "or instead of AutoRecovery. It ends when no ledger names the bookie, may be repeated after any failure, and leaves the "
    "bookie's cookie, which 'bk-spark bookie decommission' then removes"
)


def add(commands: Commands) -> None:
    defaults = AutoRecoveryConfig()
    parser = command(commands, "replicate", "copy what a lost bookie held to other bookies, as a Spark job", run)
    parser.description = TEXT
    parser.add_argument("bookie_id", metavar="BOOKIE_ID", help="the lost bookie, as 'bk-spark ledger show' names it")
    parser.add_argument("--master", default="local[*]", metavar="URL", help="where Spark runs the job (default %(default)s)")
    text = "also a bookie that is registered; make it read-only first, or writers choose it again"
    parser.add_argument("--force", action="store_true", help=text)
    default = defaults.parallel_ledgers
    text = "ledgers that a task copies at once (default %(default)s)"
    parser.add_argument("--parallel-ledgers", type=positive_count, default=default, metavar="N", help=text)
    default = defaults.replicate_bytes_per_s
    text = "bytes that a task copies a second at most (default %(default)s, also as 50m)"
    parser.add_argument("--bytes-per-s", type=positive_size_bytes, default=default, metavar="N", help=text)
    text = (
        "seconds that the writer of an open ledger is given to replace the bookie itself; then the ledger is fenced and closed "
        "(default %(default)s)"
    )
    grace_s = defaults.open_fragment_grace_s
    parser.add_argument("--open-grace-s", type=positive_number, default=grace_s, metavar="S", help=text)


def run(args: argparse.Namespace) -> None:
    """Runs a Spark of its own; ``bk_spark.datasource.jobs.rereplication.replicate_with_spark`` takes one that is there."""
    from bk_spark.datasource.jobs.compact_log import session
    from bk_spark.datasource.jobs.rereplication import check_is_gone, replicate_with_spark

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    uri = metadata_uri(args)
    with bookkeeper(args) as client:
        if not args.force:
            check_is_gone(client, args.bookie_id)  # what is wrong shows before Spark starts, which takes seconds
        config = client.config
    recovery = AutoRecoveryConfig(
        parallel_ledgers=args.parallel_ledgers,
        replicate_bytes_per_s=args.bytes_per_s,
        open_fragment_grace_s=args.open_grace_s,
    )
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
