"""What recoveries bring is told in the log, and counted apart from what writers add."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from bk_spark.bookie.progress import WORK_S
from bk_spark.bookie.server.received_copies import ReceivedCopies
from bk_spark.bookie.server.request_metrics import AskedRequest, count_answers
from bk_spark.telemetry.metrics import BOOKIE
from bk_spark.wire.messages import AddRequest, Status

MIB = 1 << 20


def test_copies_are_told_together_a_minute_after_the_first_one_and_nothing_where_none_came(
    caplog: pytest.LogCaptureFixture,
) -> None:
    due: list[tuple[float, Callable[[], None]]] = []
    copies = ReceivedCopies(lambda seconds, call: due.append((seconds, call)))
    with caplog.at_level(logging.INFO):
        copies.note(0, 0)
        assert due == []
        copies.note(2, MIB)
        copies.note(0, 0)
        copies.note(3, MIB)
        [(seconds, tell)] = due
        assert (seconds, caplog.messages) == (WORK_S, [])
        tell()
        copies.note(1, MIB)
        due[1][1]()
    assert caplog.messages == [
        "recoveries and re-replications brought 5 entries (2.0 MiB) to this bookie in the last 60 s",
        "recoveries and re-replications brought 1 entries (1.0 MiB) to this bookie in the last 60 s",
    ]


def test_adds_of_recoveries_that_were_taken_are_counted_apart() -> None:
    def counted(name: str) -> float:
        return BOOKIE.get_sample_value(f"bk_spark_bookie_copied_{name}_total") or 0.0

    before = counted("entries"), counted("bytes")
    answers = [
        (AskedRequest(AddRequest, 0.0, 5, 500, is_recovery=True), Status.OK),
        (AskedRequest(AddRequest, 0.0, 7, 700, is_recovery=True), Status.READ_ONLY),
        (AskedRequest(AddRequest, 0.0, 11, 1100), Status.OK),
    ]
    assert count_answers(answers, 1.0) == (5, 500)
    assert (counted("entries") - before[0], counted("bytes") - before[1]) == (5, 500)
