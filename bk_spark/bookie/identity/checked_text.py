"""The format of the small text files ``cookie`` and ``boot``: they name their kind and version, and a checksum shows damage.

::

    bk_spark cookie                     magic
    version: 1
    name: value                         a line each; a name may come several times
    crc32c: 8 hexadecimal digits        of everything before this line

Later versions keep the first two lines and the last one, so that a newer file is not taken for a damaged one.

Ref: docs/formats.md, "Cookie" and "Boot file".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from bk_spark.entries.crc import crc32c
from bk_spark.errors import CorruptionError, FormatVersionError

T = TypeVar("T")

_FIELD = re.compile(r"^(\w+): (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Fields:
    """The lines of one file. ``what`` names it in errors."""

    what: str
    pairs: tuple[tuple[str, str], ...]

    def all(self, name: str) -> tuple[str, ...]:
        return tuple(value for found, value in self.pairs if found == name)

    def one(self, name: str) -> str:
        """Raises CorruptionError if there is none, or it is empty."""
        values = self.all(name)
        if not values or not values[0]:
            raise CorruptionError(self.what, f"it has no {name}")
        return values[0]

    def one_of(self, name: str, values: Mapping[str, T]) -> T:
        """What the text of ``name`` stands for in ``values``. Raises CorruptionError if it is none of them."""
        text = self.one(name)
        if text not in values:
            raise CorruptionError(self.what, f"{name} is {text!r}")
        return values[text]


def encode_fields(magic: str, version: int, pairs: Iterable[tuple[str, str]]) -> bytes:
    lines = [magic, f"version: {version}", *(f"{name}: {value}" for name, value in pairs)]
    body = "".join(line + "\n" for line in lines).encode()
    return body + b"crc32c: %08x\n" % crc32c(body)


def decode_fields(data: bytes, magic: str, version: int, what: str) -> Fields:
    """The lines between the first two and the last. Raises CorruptionError, FormatVersionError."""
    body, checksum_at, checksum = data.rpartition(b"crc32c: ")
    if not checksum_at or checksum.strip() != b"%08x" % crc32c(body):
        raise CorruptionError(what, "its checksum does not match")
    try:
        fields = Fields(what, tuple(_FIELD.findall(body.decode())))
    except UnicodeDecodeError:
        raise CorruptionError(what, "it is not UTF-8 text") from None
    text = fields.one("version") if body.startswith(magic.encode() + b"\nversion: ") else ""
    check_version(what, text, version, f"it does not begin as a {magic.removeprefix('bk_spark ')} file does")
    return fields


def check_version(what: str, text: str, known: int, problem: str) -> None:
    """Raises FormatVersionError for a version above ``known``, CorruptionError with ``problem`` if ``text`` is no number."""
    found = decode_number(text)
    if found is None:
        raise CorruptionError(what, problem)
    if found > known:
        raise FormatVersionError(what, found, known)


def decode_number(text: str) -> int | None:
    """A number of at most 19 digits; None for anything else. ``int`` also takes digits of other scripts, and fails on many."""
    return int(text) if re.fullmatch(r"[0-9]{1,19}", text) else None
