"""Arguments of commands that are more than a word or a number. What is wrong with one is wrong usage: exit code 2."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from bk_spark.client.log import LogPosition
from bk_spark.datasource.option_values import size
from bk_spark.errors import ConfigError

_parse_size = size(0, 2**62)


def count(text: str) -> int:
    """A whole number, 0 or more."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return int(text)


def size_bytes(text: str) -> int:
    """A number of bytes, or a size such as ``128m``."""
    try:
        return _parse_size("", text)
    except ConfigError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size, such as 65536, 64m or 10g") from None


def positive_size_bytes(text: str) -> int:
    """As ``size_bytes``, and not 0."""
    size = size_bytes(text)
    if not size:
        raise argparse.ArgumentTypeError("it must be 1 byte at least")
    return size


def or_none(parse: Callable[[str], int]) -> Callable[[str], int | None]:
    """What ``parse`` takes, or the word ``none``."""
    return lambda text: None if text == "none" else parse(text)


def log_position(text: str) -> LogPosition:
    """``LEDGER`` or ``LEDGER:ENTRY``."""
    ledger, _, entry = text.partition(":")
    try:
        return LogPosition(count(ledger), count(entry or "0"))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a ledger id, such as 7, nor LEDGER:ENTRY, such as 7:100"
        ) from None
