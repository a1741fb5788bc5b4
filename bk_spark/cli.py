"""The ``bk-spark`` command.

Exit codes: 0 done; 1 failed, with one line on stderr; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bk_spark.errors import BookKeeperError
from bk_spark.version import VERSION

if TYPE_CHECKING:
    from bk_spark.commands.arguments import Commands, Handler

_OUTPUT_ERRORS = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Of a write to stdout. A command makes all other errors of files its own."""

logger = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    try:
        with _ended_by_interrupts():
            parser = build_parser()
        code = _run(parser.parse_args(arguments))
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


@contextmanager
def _ended_by_interrupts() -> Iterator[None]:
    """Ctrl-C ends the process at once, without the traceback of whatever is imported just then."""
    known = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or known is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, known)


def build_parser() -> argparse.ArgumentParser:
    """All commands. Imports them, which takes most of a command's start."""
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
    from bk_spark.commands.arguments import Parser

    parser: argparse.ArgumentParser = Parser(
        prog="bk-spark",
        description="Durable ledgers and logs for Spark, kept by bookies.",
        epilog="The cluster is named by --metadata zk://host:port/ledgers or by the environment variable BK_SPARK_METADATA.",
    )
    parser.add_argument("--version", action="version", version=f"bk-spark {VERSION}")
    commands: Commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (cluster, bookie, inspect, cookie, ledger, log, replicate, bench, dashboard, autorecovery, doctor):
        module.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
