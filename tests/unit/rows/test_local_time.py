"""Times without an offset from UTC, as Spark places them in a time zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from bk_spark.rows.local_time import microseconds, time_zone


@pytest.mark.parametrize(
    ("zone", "text", "expected"),
    [
        ("UTC", "2026-07-01T12:00:00", "2026-07-01T12:00:00+00:00"),
        ("z", "2026-07-01T12:00:00", "2026-07-01T12:00:00+00:00"),
        ("-08:30", "2026-07-01T12:00:00", "2026-07-01T20:30:00+00:00"),
        ("GMT+01:00", "2026-07-01T12:00:00", "2026-07-01T11:00:00+00:00"),
        ("Europe/Berlin", "2026-07-01T12:00:00", "2026-07-01T10:00:00+00:00"),
        ("Europe/Berlin", "2026-07-01T12:00:00-05:00", "2026-07-01T17:00:00+00:00"),
        ("Europe/Berlin", "2026-03-29T02:30:00", "2026-03-29T01:30:00+00:00"),
        ("Europe/Berlin", "2026-10-25T02:30:00", "2026-10-25T00:30:00+00:00"),
        ("Europe/Berlin", "0001-01-01T00:53:28", "0001-01-01T00:00:00+00:00"),
        ("Asia/Tokyo", "9999-12-31T23:59:59.999999", "9999-12-31T14:59:59.999999+00:00"),
    ],
)
def test_a_time_is_placed_as_spark_does_also_where_clocks_change(zone: str, text: str, expected: str) -> None:
    since = datetime.fromisoformat(expected) - datetime(1970, 1, 1, tzinfo=UTC)
    placed = microseconds(datetime.fromisoformat(text), time_zone(zone))
    assert placed == (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def test_a_time_may_lie_before_the_first_or_behind_the_last_year_in_utc() -> None:
    assert microseconds(datetime(1, 1, 1), time_zone("+14:00")) < microseconds(datetime(1, 1, 1), UTC)
    assert microseconds(datetime(9999, 12, 31, 23), time_zone("-08:00")) > microseconds(datetime(9999, 12, 31, 23), UTC)


@pytest.mark.parametrize(
    "text", [" ", "Berlin", "europe/berlin", "+1", "+19:00", "+01:60", "../../etc/passwd", "right/UTC", "/UTC"]
)
def test_what_is_no_time_zone_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        time_zone(text)
