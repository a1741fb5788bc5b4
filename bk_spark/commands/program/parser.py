"""The parser of the command line, and what wrong usage is.

Exit code 2 is for what the arguments alone show to be wrong, together with the environment variables that stand for them:
no cluster and no file could make it right. What a cluster, a file or the machine refuses is exit code 1.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

from bk_spark.commands.output import printable, tell, writing_output

MAX_ERROR_CHARACTERS = 1_000
"""Limit of an error about wrong usage, which repeats what was typed: a screenful."""

_NO_ARGUMENT = "expected one argument"


class UsageError(Exception):
    """The arguments contradict each other, or one is out of range: told as wrong usage of the command."""


class Parser(argparse.ArgumentParser):
    """Takes no abbreviated options, and says of wrong usage what is wrong, not all that there is.

    argparse makes subparsers of the same class.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "allow_abbrev": False})

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """What a command does not know is told as wrong usage of that command, not of the whole program."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            getattr(found, "parser", self).error(f"unrecognized arguments: {' '.join(unknown)}")
        return found

    def error(self, message: str) -> NoReturn:
        cut = message if len(message) <= MAX_ERROR_CHARACTERS else f"{message[:MAX_ERROR_CHARACTERS]}…"
        if cut.endswith(_NO_ARGUMENT):
            cut += "; a value that begins with '-' goes behind a '=', as in --option=-1"
        self.exit(2, f"{self._short_usage()}\n{self.prog}: error: {printable(cut)}\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """argparse takes no notice of what cannot be written."""
        if file is sys.stderr:
            tell(message)
            return
        with writing_output():
            print(message, end="", file=file)

    def _short_usage(self) -> str:
        """What must be given: some commands have forty options."""
        needed = [action for action in self._actions if action.required or not action.option_strings]
        formatter = self._get_formatter()
        formatter.add_usage(None, needed, [])
        line = " ".join(formatter.format_help().split())
        options = " [OPTION]…" if len(needed) < len(self._actions) else ""
        return f"{line}{options}   ('{self.prog} --help' explains all)"
