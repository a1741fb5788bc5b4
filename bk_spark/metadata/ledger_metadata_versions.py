"""Apache BookKeeper's three formats of a ledger's metadata, and ours of keyed ledgers. All are read into one message; written
is the newest of Apache's, and of a keyed ledger ours.

::

    BookieMetadataFormatVersion<tab>1<newline>      text: write quorum, ensemble size, length, a line each; then a line for each
                                                    fragment: first entry id and bookies, separated by tabs; then, unless the
                                                    ledger is open, last entry id (-102: IN_RECOVERY), tab, CLOSED
    BookieMetadataFormatVersion<tab>2<newline>      LedgerMetadataFormat in protobuf's text format
    BookieMetadataFormatVersion<tab>3<newline>      its length as a varint, LedgerMetadataFormat
    BookieMetadataFormatVersion<tab>4<newline>      the same, of a keyed ledger: programs that know nothing of keys refuse it

Version 1 has no ack quorum (it equals the write quorum), digest type, password or time of creation.

Ref: Apache BookKeeper's LedgerMetadataSerDe; docs/formats.md, "Znodes of ledgers and bookies".
"""

from __future__ import annotations

import re

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from bk_spark.errors import CorruptionError, FormatVersionError
from bk_spark.proto.ledger_metadata_pb2 import LedgerMetadataFormat

VERSION = 3
"""The version that is written."""

VERSION_OF_KEYED = 4
"""That of keyed ledgers, and the newest that is read."""

_MAGIC = b"BookieMetadataFormatVersion\t"
_CLOSED = "CLOSED"
_IN_RECOVERY = -102
"""The last entry id in version 1 of a ledger that is IN_RECOVERY."""

_NUMBER = re.compile(r"-?[0-9]{1,19}")


def written(message: LedgerMetadataFormat, *, is_keyed: bool) -> bytes:
    """The znode's value."""
    version = VERSION_OF_KEYED if is_keyed else VERSION
    encoded = message.SerializeToString(deterministic=True)
    return _MAGIC + b"%d\n" % version + _varint(len(encoded)) + encoded


def read(what: str, value: bytes) -> LedgerMetadataFormat:
    """The message in a znode's value, which errors call ``what``.

    Raises CorruptionError if it is not ledger metadata, FormatVersionError for a newer version.
    """
    version, rest = _header(what, value)
    try:
        message = _READERS[version](what, rest)
    except (DecodeError, text_format.ParseError, ValueError) as problem:
        raise CorruptionError(what, str(problem)) from None
    if not message.IsInitialized():
        raise CorruptionError(what, "a field that every ledger has is missing")
    return message


def is_of_keyed(value: bytes) -> bool:
    """Whether a znode's value, which ``read`` understands, is a keyed ledger's."""
    return value.startswith(_MAGIC + b"%d\n" % VERSION_OF_KEYED)


def _header(what: str, value: bytes) -> tuple[int, bytes]:
    if not value.startswith(_MAGIC):
        raise CorruptionError(what, "it does not start with BookieMetadataFormatVersion")
    digits, _, rest = value[len(_MAGIC) :].partition(b"\n")
    if not digits.isdigit() or len(digits) > 9 or int(digits) == 0:
        raise CorruptionError(what, f"its version is {digits[:20]!r}")
    if int(digits) > VERSION_OF_KEYED:
        raise FormatVersionError(what, int(digits), VERSION_OF_KEYED)
    return int(digits), rest


def _read_lines(what: str, rest: bytes) -> LedgerMetadataFormat:
    """Version 1."""
    lines = rest.decode().removesuffix("\n").split("\n")
    if len(lines) < 3:
        raise CorruptionError(what, f"it has {len(lines)} lines")
    write_quorum, ensemble_size, length = (_number(what, line) for line in lines[:3])
    message = LedgerMetadataFormat(
        quorumSize=write_quorum, ensembleSize=ensemble_size, length=length, state=LedgerMetadataFormat.OPEN
    )
    for line in lines[3:]:
        first, *names = line.split("\t")
        if message.state != LedgerMetadataFormat.OPEN:
            raise CorruptionError(what, "a line follows the one that says CLOSED")
        if names == [_CLOSED]:
            _end(message, _number(what, first))
        else:
            message.segment.add(firstEntryId=_number(what, first), ensembleMember=names)
    return message


def _end(message: LedgerMetadataFormat, last_entry_id: int) -> None:
    if last_entry_id == _IN_RECOVERY:
        message.state = LedgerMetadataFormat.IN_RECOVERY
    else:
        message.state = LedgerMetadataFormat.CLOSED
        message.lastEntryId = last_entry_id


def _read_text(what: str, rest: bytes) -> LedgerMetadataFormat:
    """Version 2."""
    return text_format.Parse(rest.decode(), LedgerMetadataFormat())


def _read_delimited(what: str, rest: bytes) -> LedgerMetadataFormat:
    """Versions 3 and 4."""
    size, start = _read_varint(what, rest)
    if start + size != len(rest):
        raise CorruptionError(what, f"{len(rest) - start} bytes follow where {size} are announced")
    return LedgerMetadataFormat.FromString(rest[start:])


_READERS = {1: _read_lines, 2: _read_text, VERSION: _read_delimited, VERSION_OF_KEYED: _read_delimited}


def _number(what: str, text: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise CorruptionError(what, f"it has {text[:20]!r} where a number belongs")
    return int(text)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(what: str, data: bytes) -> tuple[int, int]:
    number = 0
    for index, byte in enumerate(data[:5]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, index + 1
    raise CorruptionError(what, "its length is not a varint")
