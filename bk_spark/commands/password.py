"""The ledger password of commands: an argument, or better a file, for other users of a machine see the arguments."""

from __future__ import annotations

import argparse

from bk_spark.errors import ConfigError
from bk_spark.tls.files import warn_of_open_file

MAX_PASSWORD_BYTES = 65_536
"""The longest line that is read: no password is as long, and a wrong file may have a line without an end."""

OF_A_LOG = "the password of its ledgers"


def add_password(parser: argparse.ArgumentParser, whose: str) -> None:
    """``--password`` or ``--password-file``; ``whose`` names what it belongs to."""
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--password", default="", help=f"{whose} (default: none); other users of this machine can see it")
    either.add_argument("--password-file", metavar="FILE", help="a file whose first line is the password")


def password(args: argparse.Namespace) -> bytes:
    """The password given, empty without one. Warns of a file that other users can read. Raises ConfigError."""
    name = args.password_file
    if name is None:
        return str(args.password).encode()
    try:
        with open(name, "rb") as file:
            line = file.readline(MAX_PASSWORD_BYTES + 1)
    except OSError as problem:
        raise ConfigError("--password-file", name, f"it cannot be read ({problem.strerror})") from None
    found = line.rstrip(b"\r\n")
    if not found or len(line) > MAX_PASSWORD_BYTES:
        remedy = f"its first line must be the password, of 1 to {MAX_PASSWORD_BYTES} bytes with the line's end"
        raise ConfigError("--password-file", name, remedy)
    warn_of_open_file(name)
    return found
