"""Every schedule of the log rules holds as shipped, and loses, doubles or disorders rows without its guard.

Each is a story about one log, in log_schedules.py (rules 1, 4, 5, 9, 10), leader_schedules.py (2, 3) and
reader_schedules.py (6, 7, 8). Where a second guard stands behind the one that a rule is about, both are taken out, and the case
says so. What needs a data source is in tests/unit/datasource/test_log_rules_of_streams.py; what only many processes at once
show, in the duels of tests/simulation.

Ref: docs/rules.md, log rules 1 to 10.
"""

from __future__ import annotations

import pytest

from tests.unit.log import leader_schedules, log_schedules, reader_schedules
from tests.unit.log.log_case import LogCase, Scene, Violated

SUBJECTS = (log_schedules, leader_schedules, reader_schedules)
CASES = sorted((case for subject in SUBJECTS for case in subject.CASES), key=lambda case: case.rule)
EVERY = pytest.mark.parametrize("case", CASES, ids=str)


@EVERY
def test_the_schedule_of_a_log_rule_holds(case: LogCase) -> None:
    case.schedule(Scene())


@EVERY
def test_the_schedule_of_a_log_rule_goes_wrong_without_its_guard(case: LogCase) -> None:
    with pytest.MonkeyPatch.context() as patch:
        case.without(patch)
        with pytest.raises(Violated):
            case.schedule(Scene())


def test_every_log_rule_has_a_schedule() -> None:
    assert {case.rule for case in CASES} == set(range(1, 11))
