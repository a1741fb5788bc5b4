"""Which ledgers a step adds and which rows it removes, and which files the table has after it. Pure.

Ref: DESIGN.md, "Lake".
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bk_spark.lake.ports import Rewrite, TableChange, TableState
from bk_spark.log.stored.tier_mark import StepName, TierMark
from bk_spark.log.stored.tier_places import untiered
from bk_spark.log.stored.tier_records import NOT_NAMED, DataFile, StepAttempt, TierSection, TierStep
from bk_spark.log.stored.values import CommittedLedger

MOST_LEDGERS = 300
"""Of one step: with its attempts they are stored in one value."""

Due = Callable[[Sequence[CommittedLedger]], int]
"""The closed ledgers that are not tiered, in log order → how many of the first ones are to be."""


def plan_step(
    mark: TierMark, sections: Sequence[TierSection], closed: Sequence[CommittedLedger], due: Due, step_id: str
) -> TierStep | None:
    """The next step; None where nothing is to do.

    ``sections`` are those from ``mark.first`` on, ``closed`` the ledgers of the newest version.
    """
    listed = {one.ledger_id for one in closed}
    waiting = untiered(mark, closed)
    first, removed = _first_listed(mark, sections, listed)
    add = tuple(waiting[: min(due(waiting), MOST_LEDGERS)])
    if not add and (first, removed) == (mark.first, mark.removed):
        return None
    return TierStep(StepName(mark.last.number + 1, step_id, ""), add, first, removed)


def _first_listed(mark: TierMark, sections: Sequence[TierSection], listed: set[int]) -> tuple[int, int]:
    """The section of the first tiered ledger that is listed, and how many ledgers of the section lie before it."""
    for number, section in enumerate(sections, mark.first):
        for place, one in enumerate(section.ledgers):
            if one.ledger_id in listed:
                return number, place
    return mark.sections, 0


def boundary_after(mark: TierMark, step: TierStep) -> int | None:
    return step.add[-1].ledger_id if step.add else mark.boundary


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What becomes of the files that the table has before a step."""

    stay: tuple[DataFile, ...]
    rewrites: tuple[Rewrite, ...]

    @staticmethod
    def of(mark: TierMark, sections: Sequence[TierSection], step: TierStep) -> FilePlan:
        """``sections`` are those from ``mark.first`` on."""
        remaining = {one for number, section in enumerate(sections, mark.first) for one in ledgers_from(section, number, step)}
        files = {file: frozenset(remaining.intersection(file.ledgers)) for file in files_of(sections)}
        moved = _moved(files)
        stay = tuple(file for file, kept in files.items() if len(kept) == len(file.ledgers) and not kept & moved)
        rewrites = (Rewrite(file, tuple(one for one in file.ledgers if one in kept)) for file, kept in files.items() if kept)
        return FilePlan(stay, tuple(one for one in rewrites if one.file not in stay))

    def is_of(self, step: TierStep, attempt: StepAttempt) -> bool:
        """Whether an attempt has all rows that such a step needs. Others may have rewritten files since it was made."""
        needed = {one.ledger_id for one in step.add} | {ledger for one in self.rewrites for ledger in one.stay}
        return needed == {ledger for file in attempt.files for ledger in file.ledgers}

    def after(self, attempt: StepAttempt) -> tuple[DataFile, ...]:
        """All files of the log that the table has after the step."""
        return (*self.stay, *attempt.files)


def _moved(files: Mapping[DataFile, frozenset[int]]) -> set[int]:
    """The ledgers that stay, and whose rows go into new files. Each goes there whole, whatever files its rows are in."""
    moved = {one for file, kept in files.items() if len(kept) < len(file.ledgers) for one in kept}
    while more := {one for kept in files.values() if kept & moved for one in kept} - moved:
        moved |= more
    return moved


def in_table(mark: TierMark, sections: Sequence[TierSection], first: int) -> tuple[DataFile, ...]:
    """The files of some sections that the table has after the last step, with those of their ledgers that it has.

    ``first`` is the number of the first section.
    """
    present = {one for number, section in enumerate(sections, first) for one in ledgers_from(section, number, mark)}
    return tuple(one for file in files_of(sections) for one in of_ledgers([file], present))


def of_ledgers(files: Iterable[DataFile], ledgers: Container[int]) -> Iterator[DataFile]:
    """The files that have rows of these ledgers, with those alone."""
    for file in files:
        own = tuple(one for one in file.ledgers if one in ledgers)
        if own:
            yield replace(file, ledgers=own)


def ledgers_from(section: TierSection, number: int, place: TierMark | TierStep) -> list[int]:
    """The ledgers of a section that do not lie before a place."""
    if number < place.first:
        return []
    return [one.ledger_id for one in section.ledgers[place.removed if number == place.first else 0 :]]


def files_of(sections: Iterable[TierSection]) -> list[DataFile]:
    """Each file once, in order, with all its ledgers: others may have joined the rows of several sections in one."""
    return list(merged(file for section in sections for file in section.files))


def merged(files: Iterable[DataFile]) -> tuple[DataFile, ...]:
    """Each file once, in order, with all ledgers that any of its mentions names."""
    found: dict[str, DataFile] = {}
    for file in files:
        known = found.get(file.path, replace(file, ledgers=()))
        found[file.path] = replace(file, ledgers=tuple(dict.fromkeys((*known.ledgers, *file.ledgers))))
    return tuple(found.values())


def change_to(target: Sequence[DataFile], step: StepName, base: TableState) -> TableChange:
    """What makes the table hold these files of the log, and no other rows of it."""
    wanted, there = {one.path for one in target}, base.paths()
    gone = frozenset(one.path for one in base.files if one.has_log_rows and one.path not in wanted)
    return TableChange(step, tuple(one for one in target if one.path not in there), gone)


def section_after(section: TierSection, rewritten: Sequence[DataFile], gone: frozenset[str]) -> TierSection:
    """A section once files that take the place of ``gone`` ones are in the table. Ledgers that left the table keep theirs."""
    own = {one.ledger_id for one in section.ledgers}
    moved = {ledger for file in rewritten for ledger in file.ledgers}
    kept = (one for file in section.files for one in (of_ledgers([file], own - moved) if file.path in gone else [file]))
    new = (one for one in of_ledgers(rewritten, own | {NOT_NAMED}) if own.intersection(one.ledgers))
    return replace(section, files=merged((*kept, *new)))
