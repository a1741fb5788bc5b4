"""The ``bk-spark`` command.

Exit codes: 0 done; 1 failed, with one line on stderr; 2 wrong usage; 128 and the number of a signal: ended by it, where 141
says that whoever read the output has ended.
"""

from __future__ import annotations

import argparse
import atexit
import importlib
import logging
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bk_spark.commands.output import OutputError, flush_output, printable, say
from bk_spark.commands.program.process import SIGNALLED, Signals, give_up, open_streams
from bk_spark.errors import BookKeeperError
from bk_spark.version import VERSION

if TYPE_CHECKING:
    from bk_spark.commands.arguments import Commands, Handler

logger = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code. Without ``arguments`` this is the program, which a signal's code ends by it."""
    signals = Signals()
    open_streams()
    if arguments is None:
        atexit.register(signals.end_process)
    try:
        signals.exit_code = _command(arguments, signals)
    finally:
        signals.end()
        if arguments is not None:
            signals.restore()
    return signals.exit_code


def _command(arguments: Sequence[str] | None, signals: Signals) -> int:
    try:
        try:
            args = build_parser(sys.argv[1:] if arguments is None else arguments).parse_args(arguments)
            signals.begin()
            return _run(args, signals)
        finally:
            flush_output()
    except KeyboardInterrupt as interrupt:
        return SIGNALLED + getattr(interrupt, "number", signal.SIGINT)
    except OutputError as failed:
        give_up(sys.stdout)
        if signals.taken is not None:
            return SIGNALLED + signals.taken
        if isinstance(failed.problem, BrokenPipeError):
            return SIGNALLED + signal.SIGPIPE
        why = failed.problem.strerror
        say(f"bk-spark: what is printed cannot be written: {why} (if it was to change something, it has)")
        return 1
    except Exception:  # a library may put an error of its own in the place of the signal's
        if signals.taken is None:
            raise
        return SIGNALLED + signals.taken


def _run(args: argparse.Namespace, signals: Signals | None = None) -> int:
    from bk_spark.commands.program.parser import UsageError

    handler: Handler = args.handler
    try:
        handler(args)
    except UsageError as problem:
        if not getattr(args, "log_json", False):
            args.parser.error(str(problem))
        logger.error("%s", problem)
        return 2
    except BookKeeperError as problem:
        if signals is not None and signals.taken is not None:  # what a signal cut off failed for it
            raise
        if getattr(args, "log_json", False):
            logger.error("%s", problem)
        else:
            say("\n".join(printable(line) for line in f"bk-spark: {problem}".split("\n")))
        return 1
    return 0


_MODULES = {
    "cluster": ("cluster", "local"),
    "bookies.bookie": ("bookie",),
    "inspect": ("inspect",),
    "cookie": ("cookie",),
    "ledger": ("ledger",),
    "log": ("log", "orphans"),
    "tier": ("tier",),
    "access.token": ("token",),
    "access.grant": ("grant",),
    "replicate": ("replicate",),
    "bench": ("bench",),
    "dashboard": ("dashboard",),
    "gateway": ("gateway",),
    "autorecovery": ("auditor", "autorecovery", "underreplicated"),
    "doctor": ("doctor",),
}
"""Module of ``bk_spark.commands`` → the first words of the commands that it adds, in the order of the help."""


def build_parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The commands that ``words`` can name: to import all of them takes longer than most commands do."""
    from bk_spark.commands.program.parser import Parser

    parser: argparse.ArgumentParser = Parser(
        prog="bk-spark",
        description="Durable ledgers and logs for Spark, kept by bookies.",
        epilog="The cluster is named by --metadata zk://host:port/ledgers or by the environment variable BK_SPARK_METADATA.",
    )
    parser.add_argument("--version", action="version", version=f"bk-spark {VERSION}")
    commands: Commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in _modules(words):
        importlib.import_module(f"bk_spark.commands.{name}").add(commands)
    return parser


def _modules(words: Sequence[str]) -> tuple[str, ...]:
    if list(words[:2]) == ["bookie", "start"]:
        return ("bookies.bookie_start",)  # of the group that ``bookie`` completes
    named = tuple(module for module, first in _MODULES.items() if words and words[0] in first)
    return named or tuple(_MODULES)


if __name__ == "__main__":
    sys.exit(main())
