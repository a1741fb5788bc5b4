"""Protobuf's text format, in which Apache BookKeeper's AutoRecovery keeps its values in the metadata store."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf import text_format
from google.protobuf.message import Message

from bk_spark.errors import CorruptionError

M = TypeVar("M", bound=Message)


def to_text(message: Message) -> bytes:
    return text_format.MessageToString(message, as_utf8=True).encode()


def from_text(value: bytes, message: M, what: str) -> M:
    """Parse ``value`` into ``message`` and return it; unknown fields are ignored. Raises CorruptionError about ``what``."""
    try:
        text_format.Parse(value.decode(), message, allow_unknown_field=True)
    except (text_format.ParseError, UnicodeDecodeError) as problem:
        raise CorruptionError(what, str(problem)) from None
    return message
