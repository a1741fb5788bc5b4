"""The question before what cannot be undone. Scripts are not asked: only who sits at a terminal and does not say ``--yes``."""

from __future__ import annotations

import argparse
import sys

from bk_spark.commands.output import printable, tell
from bk_spark.errors import ConfigError


def add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask; without a terminal nobody is asked")


def check_wanted(args: argparse.Namespace, what: str, name: object) -> None:
    """Ask on the terminal whether to delete ``what`` of this name. Raises ConfigError unless the answer is yes."""
    if args.yes or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    tell(printable(f"delete {what} {name} for good? Type yes: "))
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ConfigError(what, name, "it was not deleted: the answer was not yes (--yes does not ask)")
