"""No mark says that every copy is there only where an auditor has looked at all ledgers for every bookie that is gone."""

from __future__ import annotations

from typing import Any

import pytest

from bk_spark.dashboard.copies import marks_known

AUDITED: dict[str, Any] = {"lost": ["b9"], "unaudited": [], "waiting": {}, "last_audit": {"ended_ms": 7000}}


def test_marks_are_all_after_an_audit_that_waits_for_nobody() -> None:
    known = marks_known(True, "auditor-1", AUDITED)
    assert (known.why_not, known.audited_ms) == ("", 7000)


@pytest.mark.parametrize(
    ("enabled", "auditor", "report", "why"),
    [
        (False, "auditor-1", AUDITED, "AutoRecovery is switched off"),
        (True, None, None, "no auditor runs"),
        (True, "auditor-1", None, "the auditor has not told what it sees"),
        (True, "auditor-1", {**AUDITED, "last_audit": {}}, "the auditor has not looked at all ledgers yet"),
        (True, "auditor-1", {**AUDITED, "waiting": {"b3": 9000}}, "the auditor waits for b3 to come back"),
        (True, "auditor-1", {**AUDITED, "waiting": {"b3": 9, "b4": 9}}, "the auditor waits for 2 bookies to come back"),
        (True, "auditor-1", {**AUDITED, "unaudited": ["b9"]}, "the auditor has not looked for all ledgers of b9 yet"),
    ],
)
def test_unknown_is_said_with_its_reason(enabled: bool, auditor: str | None, report: dict[str, Any] | None, why: str) -> None:
    assert marks_known(enabled, auditor, report).why_not == why


def test_an_auditor_that_does_not_tell_what_it_has_audited_is_not_taken_to_have_done_so() -> None:
    older = {name: value for name, value in AUDITED.items() if name != "unaudited"}
    assert "b9" in marks_known(True, "auditor-1", older).why_not
    assert marks_known(True, "auditor-1", {**older, "lost": []}).why_not == ""


@pytest.mark.parametrize("report", [{}, {"last_audit": 3}, {"last_audit": {"ended_ms": "soon"}}])
def test_a_report_of_another_form_tells_nothing(report: dict[str, Any]) -> None:
    known = marks_known(True, "auditor-1", report)
    assert (known.why_not, known.audited_ms) == ("the auditor has not looked at all ledgers yet", None)
