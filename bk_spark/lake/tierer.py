"""Carries out the steps of one log's tier, one after the other. Any number of tierers may do so at once, anywhere.

Every write rests on what was read: in the metadata store on versions, in the catalog on the state of the table. So a tierer
that comes late, or repeats a thing whose answer was lost, is refused or changes nothing.

Ref: DESIGN.md, "Lake".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from bk_spark.errors import BookKeeperError, ConfigError, CorruptionError, MetadataConflictError
from bk_spark.lake.plan import Due, FilePlan, boundary_after, change_to, in_table, merged, of_ledgers, plan_step
from bk_spark.lake.ports import TableChange, TableState, TierFiles, TierTable, folder_of
from bk_spark.lake.step_progress import count_files, count_release, count_step
from bk_spark.lake.stored_tier import AgainError, Sections, Stand, StoredTier
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.paths import BUCKET
from bk_spark.log.stored.tier_mark import StepName, TierMark
from bk_spark.log.stored.tier_records import (
    NOT_NAMED,
    DataFile,
    LedgerContent,
    StepAttempt,
    TieredLedger,
    TierSection,
    TierStep,
)
from bk_spark.log.stored.values import CommittedLedger, Head
from bk_spark.metadata.store import Check, Create, SetValue, StoreChange

_ATTEMPTS_KEPT = 4
"""Attempts whose late commit is recognized. That of an older one is undone by the next commit. With MOST_LEDGERS ledgers, each
in a file of its own, their record stays below MOST_BYTES."""

MOST_BYTES = 512 * 1024
"""Of a step's record; and of the records of sections that one transaction changes. A transaction takes not twice as much."""

NO_STEP_UNDER_WAY = b""
"""The znode stays, so that its version tells each step from all others: one that is made anew begins with version 0 again."""

GIVEN_UP = "given-up"
"""In the place of an attempt's name: the step changed nothing."""


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Work:
    """A step under way, and the sections that the table has rows of."""

    stand: Stand
    step: TierStep
    present: Sections

    @property
    def mark(self) -> TierMark:
        return self.stand.mark

    @property
    def plan(self) -> FilePlan:
        return FilePlan.of(self.mark, self.present.sections, self.step)

    def named(self, attempt: StepAttempt) -> StepName:
        return replace(self.step.name, attempt=attempt.name)


class Tierer:
    """Tiers the log ``name`` with the uid ``uid``."""

    def __init__(
        self, logs: LogStore, name: str, uid: str, table: TierTable, files: TierFiles, draw_id: Callable[[], str]
    ) -> None:
        self._logs = logs
        self._stored = StoredTier(logs, name, uid)
        self._store = logs.store
        self._paths = logs.names.paths(uid)
        self._name, self._uid = name, uid
        self._table = table
        self._files = files
        self._draw_id = draw_id

    def run(self, due: Due) -> bool:
        """Complete the step under way, or else begin the next one and complete it. False where there is nothing to do.

        ``due`` says which ledgers a new step adds.
        May be called again after any error, by anybody. Raises NoSuchLogError; ConfigError where the table is not the log's;
        CorruptionError where rows in the table are not the log's; MetadataConflictError; MetadataUnavailableError; what the
        store of files and the catalog raise.
        """

        def one_try() -> bool:
            stand = self._stored.read()
            if stand.step is not None:
                self._complete(_Work(stand, stand.step, self._present(stand)))
                return True
            if not self._claim(stand, due):
                return False
            raise AgainError("a step was begun")

        return self._stored.until_done("tier it", one_try)

    def give_up(self) -> bool:
        """End the step under way without its ledgers, for where it cannot be completed. False where there is none.

        A snapshot that changes no file takes its number first, so that a commit of it that is still on its way is refused.
        Raises as ``run``.
        """

        def one_try() -> bool:
            stand = self._stored.read()
            if stand.step is None:
                return False
            self._end(_Work(stand, stand.step, self._present(stand)))
            return True

        return self._stored.until_done("give a step up", one_try)

    def release(self, sections: int) -> None:
        """Prove the first ``sections`` sections, and delete their ledgers from bookies. Raises as ``run``."""
        mark = self._stored.read().mark
        for number in range(mark.cleared, min(sections, mark.sections)):
            self._stored.until_done(f"release section {number} of its tier", partial(self._release, number))

    def _present(self, stand: Stand) -> Sections:
        """The sections that the table has rows of."""
        return self._stored.sections(stand.mark.first, stand.mark.sections)

    def _claim(self, stand: Stand, due: Due) -> bool:
        closed = self._logs.reader.listing(self._name, self._uid, stand.head.version).closed
        present = self._present(stand)
        step = plan_step(stand.mark, present.sections, closed, due, self._draw_id()) or self._restoring(stand, present)
        if step is None:
            return False
        step = replace(step, schema_id=stand.head.schema_id, version=stand.head.version)
        mark = replace(stand.mark, boundary=boundary_after(stand.mark, step))
        self._store.transaction([self._stored.set_head(stand, mark), self._stored.set_step(stand, step.encode())])
        return True

    def _restoring(self, stand: Stand, present: Sections) -> TierStep | None:
        """A step that changes no ledger, where the table is not what the last step made of it: set back, or with more rows."""
        state, mark = self._look(stand.mark), stand.mark
        if state.step == mark.last:
            self._adopt(stand, present, state)
            foreign = _foreign(state, in_table(mark, present.sections, present.first))
            if foreign is None:
                return None
            logger.warning("table of log '%s': file %s has rows of it that it did not write: they go", self._name, foreign)
        if self._stored.read().mark != mark:
            raise AgainError("another tierer went on")
        self._check_not_ahead(mark, state)
        return TierStep(StepName(mark.last.number + 1, self._draw_id(), ""), (), mark.first, mark.removed)

    # One step

    def _complete(self, work: _Work) -> None:
        fitting = (one for one in reversed(work.step.attempts) if work.plan.is_of(work.step, one))
        usable = next((one for one in fitting if not self._files.missing(one.files)), None)
        if usable is None:
            self._write(work)
        else:
            state, landed = self._landed(work, usable)
            self._done(work, state, landed)
            self._clean_up(work, landed)

    def _write(self, work: _Work) -> None:
        """A new attempt: its files, the proof, and then its note. Raises AgainError."""
        state = self._look(work.mark)
        if work.plan.rewrites:
            self._find_rewrites(work, state)
        name, number = self._draw_id(), work.step.name.number
        content, files = self._written(folder_of(number, name), work)
        ledgers = tuple(self._tiered(one, content[one.ledger_id]) for one in work.step.add)
        self._prove(files, work.present.expected(ledgers))
        count_files(files)
        noted = _noted(work.step, StepAttempt(name, ledgers, files))
        self._store.set(self._paths.tier_step, noted.encode(), work.stand.step_version)
        raise AgainError("an attempt was written")

    def _find_rewrites(self, work: _Work, state: TableState) -> None:
        """Return if all files that are to be written anew are there. Otherwise note where their rows are, raise AgainError."""
        if state.step == work.mark.last:
            self._adopt(work.stand, work.present, state)
            return
        gone = set(self._files.missing(one.file for one in work.plan.rewrites))
        lost = [replace(one.file, ledgers=one.stay) for one in work.plan.rewrites if one.file.path in gone]
        if lost:  # the table has a step that was given up, and by then others had joined files
            self._note_moved(work, lost, state)

    def _written(self, folder: str, work: _Work) -> tuple[dict[int, LedgerContent], tuple[DataFile, ...]]:
        """Tried again and again, what fails must not fill the disk that it failed on."""
        try:
            return self._files.write(folder, work.step, work.plan.rewrites)
        except BookKeeperError:
            with suppress(BookKeeperError):
                self._files.delete_folder(folder)
            raise

    def _tiered(self, listed: CommittedLedger, content: LedgerContent) -> TieredLedger:
        if content.rows != listed.rows:
            what = f"ledger {listed.ledger_id} of log '{self._name}'"
            raise CorruptionError(what, f"it holds {content.rows} rows, the log lists {listed.rows}")
        return TieredLedger(listed, content.digest)

    def _landed(self, work: _Work, attempt: StepAttempt) -> tuple[TableState, StepAttempt]:
        """The table with the step, and the attempt that it came from. Raises AgainError after a commit to the catalog."""
        state = self._look(work.mark)
        self._check_unmoved(work)  # read after the table, so that the table is never ahead of what is known of the steps
        if state.step.is_step(work.step.name):
            found = work.step.attempt(state.step.attempt)
            if found is not None and work.plan.is_of(work.step, found):
                return state, found
        elif state.step == work.mark.last:
            self._adopt(work.stand, work.present, state)
        else:
            self._check_not_ahead(work.mark, state)
        self._commit(work, change_to(work.plan.after(attempt), work.named(attempt), state), state)
        raise AgainError("the table was looked at again")

    def _check_unmoved(self, work: _Work) -> Stand:
        """The newest head, if the tier stands where it did. Raises AgainError."""
        stand = self._stored.read()
        if (stand.mark, stand.step, stand.step_version) != (work.mark, work.step, work.stand.step_version):
            raise AgainError("another tierer went on")
        return stand

    def _look(self, mark: TierMark) -> TableState:
        state = self._table.look()
        if state.uuid != mark.table_uuid:
            remedy = f"the log's has the id {mark.table_uuid}, and another one has its name now: put that one back"
            raise ConfigError(f"the table of log '{self._name}'", state.uuid, remedy)
        if state.log_uid != self._uid:
            owner = "no log" if state.log_uid is None else f"the log with the id {state.log_uid}"
            remedy = f"it belongs to {owner}: a table has the rows of one log alone, give another one"
            raise ConfigError(f"the table of log '{self._name}'", state.uuid, remedy)
        return state

    def _check_not_ahead(self, mark: TierMark, state: TableState) -> None:
        """The table has another step than the log: an older one or another attempt, because the catalog was set back."""
        last = mark.last
        if state.step.number > last.number or (state.step.number == last.number and not state.step.is_step(last)):
            problem = f"it has the step {state.step}, the log has {last}: the metadata store was set back, or it is another's"
            raise ConfigError(f"the table of log '{self._name}'", state.uuid, problem)

    def _commit(self, work: _Work, change: TableChange, state: TableState) -> None:
        """One commit to the catalog. Whatever it says, the next look tells what became of it, so it may raise AgainError."""
        mixed = next((one for one in state.files if one.path in change.remove and one.has_other_rows), None)
        if mixed is not None:
            problem = f"file {mixed.path} has rows of the log that are to be removed, and others: delete those, or move them"
            raise ConfigError(f"the table of log '{self._name}'", state.uuid, problem)
        missing = set(self._files.missing(change.add))
        if missing:
            self._note_moved(work, [one for one in change.add if one.path in missing], state)
        told = replace(change, version=work.step.version, ledgers=tuple(one.ledger_id for one in work.step.add))
        try:
            self._table.commit(state, told)
        except (ConfigError, CorruptionError):
            raise  # it will say so again
        except BookKeeperError as problem:
            raise AgainError from problem

    def _done(self, work: _Work, state: TableState, landed: StepAttempt) -> None:
        """Tell the log of what was found in the table."""
        step, mark, there = work.step, work.mark, state.paths()
        files = landed.files
        if any(one.path not in there for one in files):
            files = self._located(files, work.present.expected(landed.ledgers), state)
        gone = frozenset(one.file.path for one in work.plan.rewrites)
        after = replace(
            mark,
            last=work.named(landed),
            sections=mark.sections + bool(step.add),
            first=step.first,
            removed=step.removed,
        )
        changes = [
            self._stored.set_head(self._check_unmoved(work), after),
            self._stored.set_step(work.stand, NO_STEP_UNDER_WAY),
        ]
        changes += _as_many_as_fit(work.present.changed(self._paths, files, gone))
        if step.add:
            changes += self._new_section(work, landed, files)
        self._store.transaction(changes)
        count_step(step)

    def _new_section(self, work: _Work, landed: StepAttempt, files: Sequence[DataFile]) -> list[StoreChange]:
        number, own = work.mark.sections, {one.ledger_id for one in landed.ledgers}
        section = TierSection(landed.ledgers, merged(of_ledgers(files, own)), work.step.version)
        bucket: list[StoreChange] = [Create(self._paths.tier_section_bucket(number))] if number % BUCKET == 0 else []
        return [*bucket, Create(self._paths.tier_section(number), section.encode())]

    def _clean_up(self, work: _Work, landed: StepAttempt) -> None:
        """Other attempts' files. That of one that still writes comes to nothing: its note is refused."""
        number = work.step.name.number
        for folder in self._files.folders(number):
            if folder != folder_of(number, landed.name):
                self._files.delete_folder(folder)

    def _end(self, work: _Work) -> None:
        """The table as it was, under the number of the step; then the log without the step."""
        if any(NOT_NAMED in one.ledgers for section in work.present.sections for one in section.files):
            problem = "others joined files of it while it was set back: only a whole step takes their rows apart"
            raise CorruptionError(f"the table of log '{self._name}'", problem)
        state, named = self._look(work.mark), replace(work.step.name, attempt=GIVEN_UP)
        self._check_unmoved(work)
        if state.step == work.mark.last:
            self._adopt(work.stand, work.present, state)
        elif not state.step.is_step(work.step.name):
            self._check_not_ahead(work.mark, state)
        if state.step != named:
            self._commit(work, change_to(in_table(work.mark, work.present.sections, work.present.first), named, state), state)
            raise AgainError("the table was looked at again")
        last = self._stored.sections(max(work.mark.oldest, work.mark.sections - 1), work.mark.sections).sections
        boundary = last[-1].ledgers[-1].ledger_id if last else None
        after = replace(work.mark, last=named, boundary=boundary)
        stand = self._check_unmoved(work)
        self._store.transaction([self._stored.set_head(stand, after), self._stored.set_step(stand, NO_STEP_UNDER_WAY)])

    # Files that others rewrote

    def _adopt(self, stand: Stand, present: Sections, state: TableState) -> None:
        """Return if all files of the sections are in the table. If their rows are in others: note them, raise AgainError."""
        there = state.paths()
        lost = [one for one in in_table(stand.mark, present.sections, present.first) if one.path not in there]
        if lost:
            self._note(stand, present, lost, self._located(lost, present.expected(), state))

    def _note_moved(self, work: _Work, missing: Sequence[DataFile], state: TableState) -> None:
        """Files are gone that the table was to have again: it was set back, and then others joined them. Raises AgainError.

        Where their rows are now may be others, of ledgers that no section has, or that are in files of their own, too.
        """
        try:
            found = self._located(missing, work.present.expected(), state)
        except (CorruptionError, KeyError) as problem:  # an attempt's own file is in no section
            what = f"file {missing[0].path} is gone, which it is to have again"
            raise CorruptionError(f"the table of log '{self._name}'", what) from problem
        files = [replace(one, ledgers=(*one.ledgers, NOT_NAMED)) for one in found]
        self._note(work.stand, work.present, missing, files)

    def _note(self, stand: Stand, present: Sections, lost: Sequence[DataFile], files: Sequence[DataFile]) -> None:
        """Note files in the place of lost ones. Raises AgainError."""
        unmoved = Check(self._paths.head, stand.head_version)
        changes = present.changed(self._paths, files, frozenset(one.path for one in lost))
        for change in changes:  # one by one: a transaction has a limit, and each holds alone
            self._store.transaction([unmoved, change])
        raise AgainError("files that others wrote were noted")

    def _located(self, lost: Sequence[DataFile], expected: dict[int, LedgerContent], state: TableState) -> tuple[DataFile, ...]:
        """Where the rows of files that are gone from the table are now. Raises CorruptionError unless all are there."""
        wanted = {ledger: expected[ledger] for one in lost for ledger in one.ledgers}
        return _located(self._name, wanted, state, self._files)

    def _prove(self, files: Iterable[DataFile], expected: dict[int, LedgerContent]) -> None:
        """Each ledger that the files name is in them as expected. Raises CorruptionError."""
        for ledger_id, found in self._files.read_back(files).items():
            if found != expected[ledger_id]:
                what = f"the rows of ledger {ledger_id} in the files of the tier of log '{self._name}'"
                raise CorruptionError(what, f"{found} was read, and {expected[ledger_id]} was written")

    # Release

    def _release(self, number: int) -> bool:
        """Prove one section, say that its ledgers may go, look once more, and delete them."""
        what = f"section {number} of the tier of log '{self._name}'"
        stand = self._stored.read()
        if stand.mark.cleared > number:
            return True
        one = self._stored.sections(number, number + 1)
        [section], [version] = one.sections, one.versions
        state = self._look(stand.mark)  # behind the head, at whose version all is written: so no record is newer than the table
        if state.step != stand.mark.last:
            problem = "a step of its tier is under way, or its table was set back: tier it first"
            raise MetadataConflictError(f"log '{self._name}'", problem)
        self._adopt(stand, one, state)
        needed = {file.path for file in in_table(stand.mark, [section], number)}
        gone = set(self._files.missing(section.files))
        if not needed <= state.paths() or gone & needed:
            raise CorruptionError(what, "files of it are gone: its ledgers stay on bookies")
        unfit = self._table.unfit(sorted(needed))
        if unfit:
            problem = f"somebody dropped or renamed columns of {unfit[0]} in the table: its ledgers stay on bookies"
            raise CorruptionError(what, problem)
        proved = self._proved(what, section, gone)
        mark = replace(stand.mark, released=max(stand.mark.released, number + 1))
        self._store.transaction([self._stored.set_head(stand, mark), Check(self._paths.tier_section(number), version)])
        if not needed <= self._look(mark).paths():
            raise MetadataConflictError(what, "its files were rewritten during the proof: try again")
        self._logs.ledgers.delete_listed(proved, self._uid)
        count_release(section, frozenset(proved))
        self._logs.names.change_head(self._name, self._uid, lambda head: _cleared(head, number + 1))
        return True

    def _proved(self, what: str, section: TierSection, gone: set[str]) -> list[int]:
        """The ledgers whose rows were read in files. A vacuum deletes those that left the table, and whose files are gone."""
        found = self._files.read_back(one for one in section.files if one.path not in gone)
        whole = [one for one in section.ledgers if not gone.intersection(file.path for file in section.files_of(one.ledger_id))]
        if any(found.get(one.ledger_id) != one.content for one in whole if one.content.rows):
            raise CorruptionError(what, "its files do not have its rows: its ledgers stay on bookies")
        return [one.ledger_id for one in whole]


def _cleared(head: Head, number: int) -> Head:
    assert head.tier is not None
    return replace(head, tier=replace(head.tier, cleared=max(head.tier.cleared, number)))


def _foreign(state: TableState, own: Sequence[DataFile]) -> str | None:
    """A file that is known to have nothing but rows of the log, and is not one of its own."""
    paths = {one.path for one in own}
    return next(
        (one.path for one in state.files if one.has_log_rows and not one.has_other_rows and one.path not in paths), None
    )


def _noted(step: TierStep, attempt: StepAttempt) -> TierStep:
    """The step with one more attempt: the oldest ones go where there are too many, or they are too large."""
    attempts = (*step.attempts, attempt)[-_ATTEMPTS_KEPT:]
    while len(attempts) > 1 and len(replace(step, attempts=attempts).encode()) > MOST_BYTES:
        attempts = attempts[1:]
    return replace(step, attempts=attempts)


def _as_many_as_fit(changes: Sequence[SetValue]) -> Sequence[SetValue]:
    """None, where they are too large for one transaction: the next look finds that files are gone from the table, as if others
    had rewritten them, and notes where the rows are, one section after the other. Until then the old files are there: a tag
    keeps them."""
    return changes if sum(len(one.value) for one in changes) <= MOST_BYTES else ()


def _located(log: str, wanted: Mapping[int, LedgerContent], state: TableState, files: TierFiles) -> tuple[DataFile, ...]:
    """The files of the table that have the rows of these ledgers, all of them and no others. One without rows is in none.

    Raises CorruptionError that names a ledger whose rows are not there as they were.
    """
    ids = tuple(ledger_id for ledger_id, expected in wanted.items() if expected.rows)
    candidates = [DataFile(one.path, one.size, ids) for one in state.files if one.has_log_rows]
    holding = []
    for one in candidates:
        held = tuple(ledger_id for ledger_id, content in files.read_back([one]).items() if content.rows)
        if held:
            holding.append(DataFile(one.path, one.size, held))
    found = files.read_back(holding)
    for ledger_id in ids:
        if found.get(ledger_id) != wanted[ledger_id]:
            problem = f"somebody changed its rows: {found.get(ledger_id, 'none')} in place of {wanted[ledger_id]}"
            raise CorruptionError(f"ledger {ledger_id} in the table of log '{log}'", problem)
    return tuple(holding)
