"""Times without an offset from UTC, in a time zone, as Spark reads them.

Where clocks go forward, a time that they skip counts from before the change: in Berlin 02:30 of that night is 03:30. Where they
go back, a time that comes twice is the first one.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, available_timezones

NO_ZONE = (
    "it names no offset from UTC, and Spark does not tell a format the session's time zone: "
    "write it like 2026-01-31T23:59:59Z or 2026-01-31T23:59:59+01:00, or name the zone in option 'timeZone'"
)
"""Why a time without an offset is refused where no time zone is given, and the way out."""

_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d\d):([0-5]\d)")
_MOST_HOURS = 18
_START_OF_1970 = datetime(1970, 1, 1)


def time_zone(text: str) -> tzinfo:
    """The zone that ``Europe/Berlin``, ``UTC``, ``+01:00`` or ``GMT+01:00`` names. Raises ValueError."""
    if text.upper() in ("UTC", "Z"):
        return UTC
    if match := _OFFSET.fullmatch(text):
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        if offset > timedelta(hours=_MOST_HOURS):
            raise ValueError(text)
        return timezone(offset if match[1] == "+" else -offset)
    if text not in available_timezones():
        raise ValueError(text)
    return ZoneInfo(text)


def microseconds(moment: datetime, zone: tzinfo) -> int:
    """Microseconds since 1970 in UTC; ``zone`` counts where ``moment`` has no offset of its own."""
    placed = moment if moment.tzinfo else moment.replace(tzinfo=zone)
    offset = placed.utcoffset() or timedelta()
    return (placed.replace(tzinfo=None) - _START_OF_1970 - offset) // timedelta(microseconds=1)
