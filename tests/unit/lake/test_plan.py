"""Which ledgers a step adds, and which files the table has after it. Ref: DESIGN.md, "Lake"."""

from __future__ import annotations

from bk_spark.lake.plan import FilePlan, boundary_after, change_to, in_table, plan_step, section_after
from bk_spark.lake.ports import Rewrite, TableFile, TableState
from bk_spark.log.stored.tier_mark import NO_STEP, StepName, TierMark
from bk_spark.log.stored.tier_records import NOT_NAMED, DataFile, StepAttempt, TieredLedger, TierSection, TierStep
from bk_spark.log.stored.values import CommittedLedger

LEDGERS = [CommittedLedger(one, 9, 100, 10) for one in range(1, 10)]


def section(*files: DataFile) -> TierSection:
    ids = [one for file in files for one in file.ledgers]
    return TierSection(tuple(TieredLedger(LEDGERS[one - 1], f"d{one}") for one in ids), files)


def file(path: str, *ledgers: int) -> DataFile:
    return DataFile(path, 1, ledgers)


SECTIONS = (section(file("a", 1, 2), file("b", 3)), section(file("c", 4, 5)))
MARK = TierMark(StepName(2, "s2", "x"), boundary=5, sections=2)


def plan(listed: list[CommittedLedger], due: int, mark: TierMark = MARK) -> TierStep | None:
    return plan_step(mark, SECTIONS[mark.first :], listed, lambda waiting: min(due, len(waiting)), "s3")


def test_the_ledgers_behind_the_boundary_are_added_in_the_order_of_the_log() -> None:
    step = plan(LEDGERS, 2)
    assert step == TierStep(StepName(3, "s3", ""), tuple(LEDGERS[5:7]), 0, 0)
    assert boundary_after(MARK, step) == 7


def test_where_nothing_is_due_and_nothing_was_truncated_there_is_no_step() -> None:
    assert plan(LEDGERS, 0) is None
    assert plan(LEDGERS[:5], 9) is None


def test_a_truncation_within_a_section_removes_its_first_ledgers() -> None:
    assert plan(LEDGERS[2:], 0) == TierStep(StepName(3, "s3", ""), (), 0, 2)
    assert plan(LEDGERS[3:], 0) == TierStep(StepName(3, "s3", ""), (), 1, 0)


def test_what_a_step_removed_is_not_removed_again() -> None:
    mark = TierMark(StepName(2, "s2", "x"), boundary=5, sections=2, first=0, removed=2)
    assert plan(LEDGERS[2:], 0, mark) is None


def test_after_an_overwrite_all_sections_leave_the_table_and_all_that_is_listed_may_be_added() -> None:
    new = LEDGERS[6:]
    assert plan(new, 9) == TierStep(StepName(3, "s3", ""), tuple(new), 2, 0)
    assert boundary_after(MARK, TierStep(NO_STEP, (), 2, 0)) == 5


def test_a_file_leaves_stays_or_is_rewritten_as_its_ledgers_do() -> None:
    step = TierStep(StepName(3, "s3", ""), (), 0, 1)
    files = FilePlan.of(MARK, SECTIONS, step)
    assert files == FilePlan((file("b", 3), file("c", 4, 5)), (Rewrite(file("a", 1, 2), (2,)),))
    assert FilePlan.of(MARK, SECTIONS, TierStep(StepName(3, "s3", ""), (), 1, 0)) == FilePlan((file("c", 4, 5),), ())


def test_a_file_that_others_joined_from_two_sections_counts_once() -> None:
    sections = (section(file("a", 1), file("j", 2, 3)), section(file("j", 4), file("c", 5)))
    files = FilePlan.of(MARK, sections, TierStep(StepName(3, "s3", ""), (), 0, 2))
    assert files == FilePlan((file("c", 5),), (Rewrite(file("j", 2, 3, 4), (3, 4)),))


def test_a_change_makes_the_table_hold_just_the_files_of_the_log_and_those_of_others() -> None:
    def known(path: str, *, log: bool) -> TableFile:
        return TableFile(path, 1, has_log_rows=log, has_other_rows=not log)

    base = TableState("u", "log", NO_STEP, 7, (known("a", log=True), known("b", log=True), known("theirs", log=False)))
    change = change_to([file("b", 1), file("c", 2)], MARK.last, base)
    assert (change.add, change.remove) == ((file("c", 2),), {"a"})


def test_ledgers_that_left_the_table_keep_their_old_file_and_the_others_get_the_new_one() -> None:
    after = section_after(SECTIONS[0], [file("n", 2)], frozenset({"a"}))
    assert after.files == (file("a", 1), file("b", 3), file("n", 2))
    mark = TierMark(StepName(3, "s3", "y"), boundary=5, sections=2, first=0, removed=1)
    assert in_table(mark, [after], 0) == (file("b", 3), file("n", 2))


def test_an_attempt_is_of_no_use_once_others_have_joined_what_stays_with_what_leaves() -> None:
    step = TierStep(StepName(3, "s3", ""), tuple(LEDGERS[5:6]), 0, 2)
    attempt = StepAttempt("x", (), (file("n", 6),))
    assert FilePlan.of(MARK, SECTIONS, step).is_of(step, attempt)
    joined = (section(file("a", 1, 2), file("j", 3)), section(file("j", 4), file("c", 5)))
    assert FilePlan.of(MARK, joined, step).is_of(step, attempt)
    joined = (section(file("j", 1, 2, 3)), section(file("c", 4, 5)))
    assert not FilePlan.of(MARK, joined, step).is_of(step, attempt)
    assert FilePlan.of(MARK, joined, step).is_of(step, StepAttempt("y", (), (file("n", 6), file("r", 3))))


def test_a_file_that_gets_more_rows_of_a_section_is_named_once() -> None:
    before = section(file("j", 1), file("k", 2))
    assert section_after(before, [file("k", 1)], frozenset({"j"})).files == (file("k", 2, 1),)


def test_the_files_after_a_step_are_those_that_stay_and_those_of_the_attempt() -> None:
    files = FilePlan((file("b", 3),), ())
    assert files.after(StepAttempt("x", (), (file("n", 6),))) == (file("b", 3), file("n", 6))


def test_a_ledger_in_two_files_is_rewritten_in_both_and_so_are_its_neighbours_there() -> None:
    sections = (section(file("a", 1), file("j", 2, 3)), section(file("k", 3, 4), file("l", 5)))
    plan_ = FilePlan.of(MARK, sections, TierStep(StepName(3, "s3", ""), (), 0, 2))
    assert plan_.rewrites == (Rewrite(file("j", 2, 3), (3,)), Rewrite(file("k", 3, 4), (3, 4)))
    assert plan_.stay == (file("l", 5),)


def test_a_file_that_may_have_rows_of_no_section_is_rewritten_with_those_that_are_named() -> None:
    sections = (section(file("a", 1, 2), file("b", 3)), TierSection((), (file("j", 4, NOT_NAMED),)))
    step = TierStep(StepName(3, "s3", ""), (), 0, 0)
    ledgers = TierSection(tuple(TieredLedger(LEDGERS[one - 1], f"d{one}") for one in (4,)), sections[1].files)
    found = FilePlan.of(MARK, (sections[0], ledgers), step)
    assert found == FilePlan((file("a", 1, 2), file("b", 3)), (Rewrite(file("j", 4, NOT_NAMED), (4,)),))
