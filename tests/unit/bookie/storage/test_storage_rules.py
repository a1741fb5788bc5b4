"""Every schedule of the storage rules holds as shipped, and loses, denies, falsifies or returns data without its guard.

Each is a story about one bookie, in ledger_schedules.py (rules 1, 4, 14), index_schedules.py (3), log_schedules.py (2, 6, 7,
15), entry_log_schedules.py (5), collection_schedules.py (8, 10) and boot_schedules.py (9, 11, 12, 13). Where a second guard
stands behind the one that a rule is about, both are taken out, and the case says so.

Ref: docs/rules.md, storage rules 1 to 15.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.bookie.storage import (
    boot_schedules,
    collection_schedules,
    entry_log_schedules,
    index_schedules,
    ledger_schedules,
    log_schedules,
)
from tests.unit.bookie.storage.storage_case import Case, Scene, Violated

SUBJECTS = (ledger_schedules, index_schedules, log_schedules, entry_log_schedules, collection_schedules, boot_schedules)
CASES = sorted((case for subject in SUBJECTS for case in subject.CASES), key=lambda case: case.rule)
EVERY = pytest.mark.parametrize("case", CASES, ids=str)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.end()


@EVERY
def test_the_schedule_of_a_storage_rule_holds(scene: Scene, case: Case) -> None:
    case.schedule(scene)


@EVERY
def test_the_schedule_of_a_storage_rule_goes_wrong_without_its_guard(scene: Scene, case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        case.without(patch)
        with pytest.raises(AssertionError) as caught:  # Violated is one
            case.schedule(scene)
    is_of_the_bookie = caught.traceback[-1].frame.f_globals["__name__"].startswith("bk_spark.bookie.")
    assert isinstance(caught.value, Violated) or is_of_the_bookie, "an assertion of the storage stops it before harm is done"


def test_every_storage_rule_has_a_schedule() -> None:
    assert {case.rule for case in CASES} == set(range(1, 16))
