"""The ``bk-spark`` command.

Exit codes: 0 done; 1 failed, with one line on stderr; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import sys
from collections.abc import Sequence

from bk_spark.commands import (
    autorecovery,
    bench,
    bookie,
    cluster,
    cookie,
    dashboard,
    doctor,
    inspect,
    ledger,
    log,
    replicate,
)
from bk_spark.commands.arguments import Commands, Handler, Parser
from bk_spark.errors import BookKeeperError
from bk_spark.version import VERSION

MODULES = (cluster, bookie, inspect, cookie, ledger, log, replicate, bench, dashboard, autorecovery, doctor)
"""In the order of the help."""

_OUTPUT_ERRORS = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Of a write to stdout. A command makes all other errors of files its own."""

logger = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    args = build_parser().parse_args(arguments)
    try:
        code = _run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 1
    except OSError as problem:
        if problem.errno not in _OUTPUT_ERRORS:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python is not to try again at its end
        if not isinstance(problem, BrokenPipeError):
            print(f"bk-spark: what is printed cannot be written: {problem.strerror}", file=sys.stderr)
        return 1
    return code


def _run(args: argparse.Namespace) -> int:
    handler: Handler = args.handler
    try:
        handler(args)
    except BookKeeperError as problem:
        if getattr(args, "log_json", False):
            logger.error("%s", problem)
        else:
            print(f"bk-spark: {problem}", file=sys.stderr)
        return 1
    return 0


def build_parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = Parser(
        prog="bk-spark",
        description="Durable ledgers and logs for Spark, kept by bookies.",
        epilog="The cluster is named by --metadata zk://host:port/ledgers or by the environment variable BK_SPARK_METADATA.",
    )
    parser.add_argument("--version", action="version", version=f"bk-spark {VERSION}")
    commands: Commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in MODULES:
        module.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
