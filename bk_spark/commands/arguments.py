"""Arguments of commands that are more than a word or a number. What is wrong with one is wrong usage: exit code 2."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from bk_spark.client.log.log import LogPosition
from bk_spark.config import MAX_SETTING
from bk_spark.datasource.option_values import size
from bk_spark.errors import ConfigError

_parse_size = size(0, 2**62)


def count(text: str) -> int:
    """A whole number, 0 or more."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return int(text)


def positive_count(text: str) -> int:
    """A whole number, 1 or more."""
    number = count(text)
    if not number:
        raise argparse.ArgumentTypeError("it must be 1 at least")
    return number


def positive_number(text: str) -> float:
    """A number above 0, such as ``0.5``."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= MAX_SETTING:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def port(text: str) -> int:
    """A TCP port, or 0 for a free one."""
    if not text.isascii() or not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, a whole number from 0 to 65535")
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
