"""Parsers of option values: strings from Spark → Python values.

Each parser takes the option's name and the string. It raises ConfigError with both, and with what the value must look like.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo

from bk_spark.config import DigestType
from bk_spark.errors import ConfigError, State
from bk_spark.pulsar.names import TopicName
from bk_spark.pulsar.positions import Offsets
from bk_spark.rows.lane_limits import MAX_KEY_COLUMNS, MAX_LANES
from bk_spark.rows.local_time import microseconds, time_zone

EARLIEST, LATEST = "earliest", "latest"

MAX_LEDGERS = 10_000
"""Ledgers that one ``ledger`` option may name: each costs a read of the metadata store before the first row."""

MAX_LOGS_READ = 1_000
"""Logs of one read: each costs a few round trips to the metadata store before the first row, and a task of its own."""
MAX_PATTERN_CHARACTERS = 1_000
"""A name has 200 characters at most, so a longer pattern is a mistake."""

_RANGE = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?")
_TOPICS_PATTERN = re.compile(r"persistent://([^/]+)/([^/]+)/(.+)")
_OFFSET_KEYS = {"entry", "index", "ledger", "log", "version"}
_SEVERAL_KEYS = {"format", "logs"}


def text(name: str, value: str) -> str:
    """Any text that is not empty."""
    if not value:
        raise ConfigError(f"option '{name}'", value, "it must not be empty")
    return value


def short_text(most: int) -> Callable[[str, str], str]:
    def parse(name: str, value: str) -> str:
        if not 1 <= len(value) <= most:
            raise ConfigError(f"option '{name}'", value[:most], f"it must have 1 to {most} characters")
        return value

    return parse


def integer(low: int, high: int) -> Callable[[str, str], int]:
    """A whole number, both bounds included."""

    def parse(name: str, value: str) -> int:
        if not re.fullmatch(r"\d{1,19}", value.strip()) or not low <= int(value) <= high:
            raise ConfigError(f"option '{name}'", value, f"it must be a whole number from {low} to {high}")
        return int(value)

    return parse


def seconds(name: str, value: str) -> float:
    """A number, 0 or more."""
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value):
        raise ConfigError(f"option '{name}'", value, "it must be a number of seconds, such as 2.5")
    return float(value)


def boolean(name: str, value: str) -> bool:
    """``true`` or ``false``."""
    if value.lower() not in ("true", "false"):
        raise ConfigError(f"option '{name}'", value, "it must be true or false")
    return value.lower() == "true"


def one_of(*choices: str) -> Callable[[str, str], str]:
    """One of ``choices``, in upper or lower case."""

    def parse(name: str, value: str) -> str:
        if value.lower() not in choices:
            raise ConfigError(f"option '{name}'", value, f"it must be one of {', '.join(choices)}")
        return value.lower()

    return parse


def digest_type(name: str, value: str) -> DigestType:
    """The name of a digest type."""
    if value.upper() not in DigestType.__members__:
        raise ConfigError(f"option '{name}'", value, f"it must be one of {', '.join(DigestType.__members__)}")
    return DigestType[value.upper()]


def ledger_ids(name: str, value: str) -> tuple[int, ...]:
    """``7``, ``3,5`` or ``3-9``, in the order given."""
    ids: list[int] = []
    for part in value.split(","):
        match = _RANGE.fullmatch(part.strip())
        if not match:
            raise ConfigError(f"option '{name}'", value, "it must be a ledger id, a list such as 3,5 or a range such as 3-9")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or len(ids) + last - first >= MAX_LEDGERS:
            raise ConfigError(f"option '{name}'", value, f"it must name ascending ranges, {MAX_LEDGERS} ledgers at most")
        ids += range(first, last + 1)
    if len(set(ids)) != len(ids):
        raise ConfigError(f"option '{name}'", value, "it names a ledger twice")
    return tuple(ids)


def column_names(name: str, value: str) -> tuple[str, ...]:
    """``a,b`` in the order given, without the spaces around the names."""
    names = tuple(one.strip() for one in value.split(","))
    if not all(names) or len(names) > MAX_KEY_COLUMNS:
        raise ConfigError(f"option '{name}'", value, f"it must be 1 to {MAX_KEY_COLUMNS} names of columns, such as a,b")
    return names


def lane_numbers(name: str, value: str) -> tuple[int, ...]:
    """``3`` or ``0,3``; how many lanes there are, the log says."""
    parts = [one.strip() for one in value.split(",")]
    numbers = tuple(int(one) for one in parts if re.fullmatch(r"[0-9]{1,3}", one))
    if len(numbers) < len(parts) or max(numbers) >= MAX_LANES:
        raise ConfigError(f"option '{name}'", value, f"it must be a number from 0 to {MAX_LANES - 1}, or a list such as 0,3")
    return numbers


def log_names(name: str, value: str) -> tuple[str, ...]:
    """``a,b,c`` in the order given, without the spaces around the names."""
    return _distinct(name, value, [one.strip() for one in value.split(",")])


def log_list(name: str, value: str) -> tuple[str, ...]:
    """The JSON that Spark makes of ``load(["a", "b"])``. A name in it may contain commas."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ConfigError(f"option '{name}'", value, 'it must be a list of names, as load(["a", "b"]) gives it')
    return _distinct(name, value, found)


def _distinct(name: str, value: str, names: list[str]) -> tuple[str, ...]:
    if not all(names):
        raise ConfigError(f"option '{name}'", value, "it must be names of logs, such as a,b,c: one of them is empty")
    if len(names) > MAX_LOGS_READ:
        remedy = f"one read takes {MAX_LOGS_READ} logs at most: read fewer, and join them with union()"
        raise ConfigError(f"option '{name}'", State(f"a list of {len(names)} logs"), remedy)
    twice = next((one for place, one in enumerate(names) if one in names[:place]), None)
    if twice is not None:
        raise ConfigError(f"option '{name}'", value, f"it names log '{twice}' twice")
    return tuple(names)


def topic_name(name: str, value: str) -> str:
    """The name of a topic, whole or short; returns the whole one."""
    try:
        return str(TopicName.parse(value.strip()))
    except ConfigError as problem:
        raise ConfigError(f"option '{name}'", value, problem.remedy) from None


def topic_names(name: str, value: str) -> tuple[str, ...]:
    """``a,b,c``: names of topics, whole or short, in the order given, each once."""
    names = tuple(topic_name(name, one) for one in value.split(","))
    if len(names) > MAX_LOGS_READ:
        remedy = f"one read takes {MAX_LOGS_READ} topics at most: read fewer, and join them with union()"
        raise ConfigError(f"option '{name}'", State(f"a list of {len(names)} topics"), remedy)
    twice = next((one for place, one in enumerate(names) if one in names[:place]), None)
    if twice is not None:
        raise ConfigError(f"option '{name}'", value, f"it names topic '{twice}' twice")
    return names


def topics_pattern(name: str, value: str) -> str:
    """``persistent://tenant/namespace/`` and a regular expression of Python, for the names of topics in that namespace."""
    match = _TOPICS_PATTERN.fullmatch(value)
    if match is None:
        remedy = (
            "it must be persistent://tenant/namespace/ and a regular expression, such as persistent://public/default/orders-.*"
        )
        raise ConfigError(f"option '{name}'", value, remedy)
    pattern(name, match[3])
    return value


def pattern_of(value: str) -> tuple[str, str, str]:
    """The tenant, the namespace and the regular expression of a ``topics_pattern``."""
    match = _TOPICS_PATTERN.fullmatch(value)
    assert match is not None
    return match[1], match[2], match[3]


def topic_start(name: str, value: str) -> str:
    """Where a read of topics begins: see ``Offsets``."""
    Offsets.parse(f"option '{name}'", value)
    return value


def topic_end(name: str, value: str) -> str:
    """Where it ends."""
    Offsets.parse_end(f"option '{name}'", value)
    return value


def pattern(name: str, value: str) -> str:
    """A regular expression of Python."""
    if not 1 <= len(value) <= MAX_PATTERN_CHARACTERS:
        remedy = f"it must have 1 to {MAX_PATTERN_CHARACTERS} characters"
        raise ConfigError(f"option '{name}'", value[:MAX_PATTERN_CHARACTERS], remedy)
    try:
        re.compile(value)
    except (re.error, OverflowError, RecursionError) as problem:
        raise ConfigError(f"option '{name}'", value, f"it must be a regular expression of Python: {problem}") from None
    return value


def offsets(*words: str) -> Callable[[str, str], str]:
    """One of ``words``, or the JSON of an offset as a stream reports it; the JSON's values are checked where it is used."""

    def parse(name: str, value: str) -> str:
        if value.lower() in words:
            return value.lower()
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or (found.keys() - {"start"} != _OFFSET_KEYS and found.keys() != _SEVERAL_KEYS):
            example = '{"entry":12,"index":3,"ledger":7,"log":"<uid>","version":41}'
            remedy = f"it must be {' or '.join(words)}, or an offset of a stream such as {example}"
            raise ConfigError(f"option '{name}'", value, remedy)
        return value

    return parse


_LEDGER_OFFSET = 'it must be an offset of a stream over one ledger, such as {"entry":12,"ledger":7}: the next entry to read'


def ledger_offset(what: str, value: str) -> dict[str, int]:
    """The JSON of an offset of a stream over one ledger. ``start`` is in those of its first batch: the entry it began with."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        found = None
    names = found.keys() - {"start"} if isinstance(found, dict) else ()
    if names != {"entry", "ledger"} or not all(type(number) is int and 0 <= number < 2**63 for number in found.values()):
        raise ConfigError(what, value, _LEDGER_OFFSET)
    if found.get("start", 0) > found["entry"]:
        raise ConfigError(what, value, "'start' must not lie behind 'entry'")
    return dict(found)


def ledger_start(name: str, value: str) -> str:
    """Where a stream over one ledger begins: ``earliest``, ``latest`` or an offset."""
    if value.lower() in (EARLIEST, LATEST):
        return value.lower()
    try:
        ledger_offset(f"option '{name}'", value)
    except ConfigError as problem:
        raise ConfigError(f"option '{name}'", value, f"{problem.remedy}; or earliest, or latest") from None
    return value


def moment(name: str, value: str) -> int | datetime:
    """Milliseconds since 1970, of a number or a time with an offset; a time without one as it is.

    Numbers of few digits are refused: they are seconds since 1970, or dates such as 20260301, and would mean a day in 1970.
    """
    if re.fullmatch(r"0|\d{12,15}", value.strip()):
        return int(value)
    try:
        found = datetime.fromisoformat("" if value.strip().isdecimal() else value.strip())
    except ValueError:
        remedy = "it must be a time such as 2026-03-01T12:30:00+01:00, or milliseconds since 1970: 0, or 12 digits or more"
        raise ConfigError(f"option '{name}'", value, remedy) from None
    return milliseconds(found, UTC) if found.tzinfo else found


def milliseconds(found: datetime, zone: tzinfo) -> int:
    """Milliseconds since 1970, cut to whole ones; ``zone`` counts for a time without an offset."""
    return microseconds(found, zone) // 1000


def zone_name(name: str, value: str) -> str:
    """A time zone by its name, or an offset from UTC."""
    try:
        time_zone(value)
    except ValueError:
        remedy = "it must be a time zone such as Europe/Berlin, UTC or +01:00 that this machine knows"
        raise ConfigError(f"option '{name}'", value, remedy) from None
    return value
