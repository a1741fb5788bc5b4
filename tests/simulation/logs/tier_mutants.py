"""Deliberate bugs of a tier's code, each of which duels with a tier must find (``seeds`` and ``caught_by``: mutants.py)."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from unittest.mock import patch

from bk_spark.lake import plan, stored_tier, tierer, vacuum
from bk_spark.lake.ports import TableChange, TableFile, TableState
from bk_spark.lake.tierer import Tierer
from bk_spark.log.changes import plan as commit_plan
from bk_spark.log.stored.tier_mark import StepName, TierMark
from bk_spark.log.stored.tier_records import DataFile, StepAttempt, TierSection
from tests.simulation.engines.choices import SeededChoices
from tests.simulation.logs.duel import run_duel
from tests.simulation.logs.lake import Lake


@dataclass(frozen=True, slots=True)
class TierMutant:
    patch: Callable[[], AbstractContextManager[object]]
    invariants: tuple[str, ...]
    seeds: int
    caught_by: int

    @property
    def name(self) -> str:
        return self.patch.__name__.replace("_", " ")

    def caught(self) -> int | None:
        """After how many duels; None if none of ``seeds`` found it."""
        return next((seed + 1 for seed in range(self.seeds) if self.is_caught_by(seed)), None)

    def is_caught_by(self, seed: int) -> bool:
        with self.patch():
            violation = run_duel(SeededChoices(seed), tiers=True).violation
        return violation is not None and violation.invariant in self.invariants


def the_catalog_rebases_a_refused_commit() -> AbstractContextManager[object]:
    """As a library may do by itself."""
    return patch.object(Lake, "apply", lambda self, base, change: _apply(self, self.newest, change))


def a_claim_moves_no_boundary() -> AbstractContextManager[object]:
    return patch.object(tierer, "boundary_after", lambda mark, step: mark.boundary)


def compaction_takes_tiered_ledgers() -> AbstractContextManager[object]:
    return patch.object(commit_plan, "_check_tier", lambda head, rest: None)


def the_log_is_told_before_the_table_has_it() -> AbstractContextManager[object]:
    return patch.object(Tierer, "_landed", lambda self, work, attempt: (_as_if(self._look(work.mark), attempt), attempt))


def a_catalog_that_was_set_back_is_not_noticed() -> AbstractContextManager[object]:
    return patch.object(Tierer, "_restoring", lambda self, stand, present: None)


def files_are_not_read_back() -> AbstractContextManager[object]:
    return patch.object(Tierer, "_prove", lambda self, files, expected: None)


def an_attempt_counts_though_others_joined_files_since() -> AbstractContextManager[object]:
    return patch.object(plan.FilePlan, "is_of", lambda self, step, attempt: True)


def truncated_rows_stay_in_the_table() -> AbstractContextManager[object]:
    def change_to(target: Sequence[DataFile], step: StepName, base: TableState) -> TableChange:
        return replace(_change_to(target, step, base), remove=frozenset())

    return patch.object(tierer, "change_to", change_to)


def old_versions_lose_the_files_of_what_left_the_table() -> AbstractContextManager[object]:
    def section_after(section: TierSection, rewritten: Sequence[DataFile], gone: frozenset[str]) -> TierSection:
        after = _section_after(section, rewritten, gone)
        return replace(after, files=tuple(one for one in after.files if one.path not in gone))

    return patch.object(stored_tier, "section_after", section_after)


def ledgers_are_deleted_before_the_log_says_so() -> AbstractContextManager[object]:
    def release(self: Tierer, number: int) -> None:
        ids = [ledger.ledger_id for ledger in self._stored.sections(number, number + 1).sections[0].ledgers]
        self._logs.ledgers.delete_listed(ids, self._uid)
        _release(self, number)

    return patch.object(Tierer, "_release", release)


def the_first_ledger_that_stays_is_taken_for_a_truncated_one() -> AbstractContextManager[object]:
    def first_listed(mark: TierMark, sections: Sequence[TierSection], listed: set[int]) -> tuple[int, int]:
        number, place = _first_listed(mark, sections, listed)
        return number, place + (place > 0)

    return patch.object(plan, "_first_listed", first_listed)


def a_vacuum_forgets_what_old_versions_list() -> AbstractContextManager[object]:
    return patch.object(vacuum, "_Needed", _NewestAlone)


def a_vacuum_drops_the_tags_of_versions_that_can_be_read() -> AbstractContextManager[object]:
    return patch.object(Lake, "expire", lambda self, oldest, version: _expire(self, oldest, 10**9))


class _NewestAlone(vacuum._Needed):
    def any(self, section: TierSection, ledgers: Iterable[int]) -> bool:
        return False


def _as_if(state: TableState, attempt: StepAttempt) -> TableState:
    """The table, if it had the attempt's files."""
    added = tuple(TableFile(one.path, one.size, has_log_rows=True, has_other_rows=False) for one in attempt.files)
    return replace(state, files=(*state.files, *added))


_apply = Lake.apply
_expire = Lake.expire
_release = Tierer._release
_change_to = plan.change_to
_section_after = plan.section_after
_first_listed = plan._first_listed

TIER_MUTANTS = (
    TierMutant(the_catalog_rebases_a_refused_commit, ("T1", "T2"), 600, 24),
    TierMutant(a_claim_moves_no_boundary, ("T1", "T2"), 600, 0),
    TierMutant(compaction_takes_tiered_ledgers, ("T2", "L0"), 600, 2),
    TierMutant(the_log_is_told_before_the_table_has_it, ("T2", "T5"), 600, 0),
    TierMutant(a_catalog_that_was_set_back_is_not_noticed, ("T2",), 600, 2),
    TierMutant(files_are_not_read_back, ("T2", "T3", "L0", "L6"), 600, 0),
    TierMutant(an_attempt_counts_though_others_joined_files_since, ("T2", "T3", "L0", "L6"), 600, 332),
    TierMutant(truncated_rows_stay_in_the_table, ("T2",), 600, 34),
    TierMutant(old_versions_lose_the_files_of_what_left_the_table, ("L5", "L6", "T3"), 600, 185),
    TierMutant(ledgers_are_deleted_before_the_log_says_so, ("L6",), 600, 0),
    TierMutant(the_first_ledger_that_stays_is_taken_for_a_truncated_one, ("T2", "L6"), 600, 71),
    TierMutant(a_vacuum_forgets_what_old_versions_list, ("L0", "L5", "L6", "T3", "T4"), 9100, 3011),
    TierMutant(a_vacuum_drops_the_tags_of_versions_that_can_be_read, ("L5", "L6", "T3"), 600, 63),
)


def table(processes: int) -> Iterator[tuple[str, bool]]:
    """Search for all mutants: a line each, and whether it was caught."""
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap(_line, range(len(TIER_MUTANTS)))


def _line(number: int) -> tuple[str, bool]:
    mutant = TIER_MUTANTS[number]
    duels = mutant.caught()
    return f"{mutant.name:<60} tier, duels: {duels or 'not caught'}", duels is not None
