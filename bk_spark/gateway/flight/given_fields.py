"""Reads the JSON objects that callers send, one field after the other. Pure.

What comes here may come from anybody: its size is bounded before it is parsed, a field that is not known is refused, and so is
one of another kind. Every refusal is one sentence that names the field.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final, NoReturn

from bk_spark.errors import ConfigError
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.stored.names import check_log_name
from bk_spark.rows.arrow_types import has_more_levels

MAX_REQUEST_BYTES: Final = 64 * 1024
"""Of a descriptor, a ticket, a criteria or an action's body: the longest ``where`` and 1,000 columns fit in."""

MAX_ITEMS: Final = 1_000
"""Of a list of names or lanes."""

MAX_TEXT: Final = 32 * 1024
"""Characters of one text, such as ``where``."""

MAX_LEVELS: Final = 16
"""Of lists and objects in one another: a position of a tail has a few."""

MAX_NUMBER: Final = 2**63 - 1


class GivenFields:
    """The fields of one object. ``end`` refuses those that nobody asked for. All methods raise ConfigError."""

    def __init__(self, what: str, data: bytes) -> None:
        """``what`` names the object in errors, such as "the ticket"."""
        if len(data) > MAX_REQUEST_BYTES:
            raise ConfigError(f"the size of {what}", len(data), f"it may have {MAX_REQUEST_BYTES} bytes")
        try:
            found = json.loads(data, parse_constant=_refuse, object_pairs_hook=_once)
        except (ValueError, RecursionError):  # a UnicodeDecodeError is a ValueError
            raise ConfigError(what, bytes(data[:200]), 'it must be a JSON object, such as {"log": "orders"}') from None
        if not isinstance(found, dict):
            raise ConfigError(what, bytes(data[:200]), 'it must be a JSON object, such as {"log": "orders"}')
        if has_more_levels(found, MAX_LEVELS):
            raise ConfigError(what, bytes(data[:200]), f"its lists and objects may have {MAX_LEVELS} levels in one another")
        self._what = what
        self._left: dict[str, Any] = found
        self._known: list[str] = []

    def end(self) -> None:
        for name in self._left:
            known = ", ".join(self._known)
            raise ConfigError(f"a field of {self._what}", name[:100], f"there is none of this name here, there are {known}")

    def has(self, name: str) -> bool:
        return self._left.get(name) is not None

    def log(self) -> str:
        """The field ``log``: the name of a log."""
        name = self.needed_text("log")
        check_log_name(name)
        return name

    def needed_text(self, name: str) -> str:
        found = self.text(name)
        if found is None:
            raise ConfigError(f"'{name}' in {self._what}", None, "give it")
        return found

    def text(self, name: str) -> str | None:
        value = self._take(name)
        if value is None:
            return None
        if not isinstance(value, str) or len(value) > MAX_TEXT or not _can_be_encoded(value):
            self._refuse(name, value, f"it must be a text of {MAX_TEXT} characters at most")
        return str(value)

    def choice(self, name: str, known: tuple[str, ...]) -> str:
        """One of some words, by default the first."""
        value = self.text(name)
        if value is None:
            return known[0]
        if value not in known:
            self._refuse(name, value, f"it must be {' or '.join(map(repr, known))}")
        return value

    def flag(self, name: str) -> bool:
        value = self._take(name)
        if value is not None and not isinstance(value, bool):
            self._refuse(name, value, "it must be true or false")
        return bool(value)

    def number(self, name: str, least: int = 0, most: int = MAX_NUMBER) -> int | None:
        value = self._take(name)
        if value is None:
            return None
        if type(value) is not int or not least <= value <= most:
            self._refuse(name, value, f"it must be a whole number from {least} to {most}")
        return int(value)

    def texts(self, name: str) -> tuple[str, ...] | None:
        """A list of texts, or one."""
        value = self._take(name)
        if value is None:
            return None
        given = [value] if isinstance(value, str) else value
        if not isinstance(given, list) or not 1 <= len(given) <= MAX_ITEMS:
            self._refuse(name, value, f"it must be a list of 1 to {MAX_ITEMS} names")
        if not all(isinstance(one, str) and one and _can_be_encoded(one) for one in given):
            self._refuse(name, value, "it must be a list of names")
        return tuple(given)

    def numbers(self, name: str) -> tuple[int, ...] | None:
        """A list of whole numbers from 0 on, or one."""
        value = self._take(name)
        if value is None:
            return None
        given = value if isinstance(value, list) else [value]
        is_right = 1 <= len(given) <= MAX_ITEMS and all(type(one) is int and 0 <= one <= MAX_NUMBER for one in given)
        if not is_right:
            self._refuse(name, value, f"it must be a whole number from 0 on, or a list of 1 to {MAX_ITEMS} of them")
        return tuple(given)

    def position(self, name: str) -> LogPosition | None:
        """``[ledger, entry]``."""
        value = self._take(name)
        if value is None:
            return None
        is_right = (
            isinstance(value, list) and len(value) == 2 and all(type(one) is int and 0 <= one <= MAX_NUMBER for one in value)
        )
        if not is_right:
            self._refuse(name, value, "it must be the place of an entry, [ledger, entry], such as [7, 0]")
        return LogPosition(value[0], value[1])

    def time(self, name: str) -> datetime | None:
        """ISO 8601 with an offset."""
        text = self.text(name)
        if text is None:
            return None
        try:
            found = datetime.fromisoformat(text)
            found.timestamp()
        except (ValueError, OverflowError, OSError):
            self._refuse(name, text, "it must be a time such as 2026-01-31T12:30:00+00:00")
        if found.tzinfo is None:
            self._refuse(name, text, "it has no offset from UTC: write one, such as 2026-01-31T12:30:00+00:00")
        return found

    def application(self, name: str) -> tuple[str, int] | None:
        """``[id, version]``."""
        value = self._take(name)
        if value is None:
            return None
        is_right = isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and type(value[1]) is int
        if not is_right or not value[0] or not _can_be_encoded(value[0]) or not 0 <= value[1] <= MAX_NUMBER:
            self._refuse(name, value, 'it must be an id and a version, such as ["loader", 7]')
        return value[0], value[1]

    def json(self, name: str) -> str | None:
        """A text as it is, anything else as JSON."""
        value = self._take(name)
        return value if value is None or isinstance(value, str) else json.dumps(value)

    def _take(self, name: str) -> Any:
        self._known.append(name)
        return self._left.pop(name, None)

    def _refuse(self, name: str, value: object, remedy: str) -> NoReturn:
        shown = json.dumps(value)
        raise ConfigError(f"'{name}' in {self._what}", shown if len(shown) <= 200 else f"{shown[:200]}…", remedy)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _can_be_encoded(value: str) -> bool:
    return value.isascii() or not any("\ud800" <= one <= "\udfff" for one in value)
