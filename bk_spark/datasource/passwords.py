"""A ledger's password as text. BookKeeper's passwords are bytes; an option of Spark and a program's argument are text."""

from __future__ import annotations

import re

from bk_spark.errors import ConfigError, State

MAX_PASSWORD_BYTES = 65_536
"""The longest line that is read: no password is as long, and a wrong file may have a line without an end."""

_HEX = "0x"


def password(_name: str, value: str) -> bytes:
    """The bytes of option ``password``: those behind ``0x``, or else the text in UTF-8. No error shows it.

    Whatever begins with ``0x`` is hexadecimal or refused: taken for text, a slip of the hand would be another password.
    """
    if value.startswith(_HEX):
        if not re.fullmatch(r"([0-9a-fA-F]{2})+", value.removeprefix(_HEX)):
            remedy = "behind '0x' there must be pairs of hexadecimal digits; give a text that begins so with 'passwordFile'"
            raise ConfigError("option 'password'", State("(not shown)"), remedy)
        return bytes.fromhex(value.removeprefix(_HEX))
    try:
        return value.encode()
    except UnicodeEncodeError:
        remedy = "it must be text that UTF-8 can write, or '0x' and pairs of hexadecimal digits"
        raise ConfigError("option 'password'", State("(not shown)"), remedy) from None


def as_option(value: bytes) -> str:
    """The option ``password`` for these bytes."""
    return _HEX + value.hex()


def password_in_file(what: str, path: str) -> bytes:
    """The first line of a file, without its end. Warns of a file that other users can read.

    Raises ConfigError, in which ``what`` names the option that gives the path.
    """
    from bk_spark.tls.files import warn_of_open_file

    try:
        with open(path, "rb") as file:
            line = file.readline(MAX_PASSWORD_BYTES + 1)
        found = line.rstrip(b"\r\n")
        if not found or len(line) > MAX_PASSWORD_BYTES:
            remedy = f"its first line must be the password, of 1 to {MAX_PASSWORD_BYTES} bytes with the line's end"
            raise ConfigError(what, path, remedy)
        warn_of_open_file(path)
    except OSError as problem:
        raise ConfigError(what, path, f"it cannot be read ({problem.strerror})") from None
    except ValueError:
        raise ConfigError(what, path, "it is not the path of a file") from None
    return found
