"""The index against dicts, over any order of operations, and crashes before and after each of them.

Ref: docs/rules.md, storage rules 1, 3, 5, 10, 11, 14.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.bookie.index.ledger_index import LedgerChange
from bk_spark.bookie.index.values import Limbo
from bk_spark.bookie.log_files.log_file import FilePosition
from bk_spark.bookie.log_files.mark import LogMark, LogState
from bk_spark.bookie.log_files.writer import EntryLocation
from bk_spark.quorum import DENSE, IdPattern
from tests.budget import examples
from tests.simulation.world.simulated_disk import MachineStops, SimulatedDisk
from tests.simulation.world.simulated_index import open_simulated_index
from tests.unit.bookie.index.index_model import KEY, IndexModel, log, stored

LEDGERS = (1, 2, 17, 1 << 21)
"""1, 2 and 2^21 + 1 share a bucket."""

_firsts = st.builds(
    int.__add__,
    st.sampled_from([0, 65_500, 65_536, 1 << 24, (1 << 24) + 131_000, 5 << 32, 3 << 40]),
    st.integers(0, 60),
)
_spans = st.one_of(st.integers(1, 60), st.sampled_from([65_535, 65_536]))
_patterns = st.one_of(st.just(DENSE), st.builds(IdPattern, st.just(3), st.just(2), st.integers(0, 2)))
_batches = st.tuples(st.sampled_from(LEDGERS), _firsts, _spans, _patterns)
_commits = st.tuples(st.just("commit"), st.lists(_batches, max_size=8), st.sets(st.sampled_from(LEDGERS), max_size=2))
_operations = st.one_of(
    _commits,
    _commits,
    st.tuples(st.just("delete"), st.sampled_from(LEDGERS), st.booleans()),
    st.tuples(st.just("move"), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("remove"), st.integers(1, 4)),
    st.tuples(st.just("purge"), st.sets(st.sampled_from(LEDGERS))),
    st.tuples(st.just("limbo"), st.sets(st.integers(0, 40))),
    st.tuples(st.just("reopen")),
)


class Run:
    """One index over a simulated disk, and the model that it is held against."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(1)
        self.model = IndexModel()
        self.sequence = 0
        self.file_id = 1
        self.index = self.open()

    def open(self):
        return open_simulated_index(Path("/data/index"), "bookie-1", self.disk, logs_exist=False)

    def both(self, method: str, *arguments) -> None:
        """Do the same to index and model."""
        assert getattr(self.index, method)(*arguments) == getattr(self.model, method)(*arguments)

    def commit(self, batches, fenced) -> None:
        changes = {ledger_id: LedgerChange(ledger_id, KEY, -1, [], is_fenced=True) for ledger_id in fenced}
        for ledger_id, first, span, pattern in batches:
            self.sequence += 1
            change = changes.setdefault(ledger_id, LedgerChange(ledger_id, KEY, first, []))
            change.batches.append(stored(ledger_id, first, first + span - 1, self.sequence, pattern, self.file_id))
        mark = LogMark(self.sequence + 1, 3, 1, (FilePosition(2, 50),), (FilePosition(1, 9), FilePosition(2, self.sequence)))
        self.both("commit", list(changes.values()), mark, [log(self.file_id, size=self.sequence)])

    def delete(self, ledger_id, is_revived) -> None:
        """Deleted, with a stored batch before and, perhaps, one behind it."""
        batches = [
            stored(ledger_id, 3, 9, self.sequence + step, file_id=self.file_id) for step in ((1, 3) if is_revived else (1,))
        ]
        change = LedgerChange(ledger_id, KEY, 4, batches, deleted_at=self.sequence + 2, deleted_ms=1_000 + self.sequence)
        self.sequence += 3
        self.both("commit", [change], replace(self.model.mark, next_sequence=self.sequence + 1), [log(self.file_id)])

    def move(self, count, is_outdated) -> None:
        """Compact the current log, all of it or the first stored batches, some of which have moved meanwhile."""
        old, new = self.file_id, self.file_id + 1
        self.file_id += 2
        self.both("commit", [], self.model.mark, [log(old, is_sealed=True)])
        batches = [one for one in self.model.batches.values() if one.location.file_id == old][: count or None]
        moves = [(one, EntryLocation(new, 4096 + place, one.location.length)) for place, one in enumerate(batches)]
        if is_outdated and moves:
            stale = replace(moves[0][0], location=EntryLocation(old, 1, 200))
            moves[0] = (stale, moves[0][1])
        self.both("move", moves, [log(new, directory=1)], old)
        if self.model.entry_logs[old][1] is LogState.DEAD:
            self.index.forget_log(old)
            del self.model.entry_logs[old]
        self.model.mark = replace(self.model.mark, next_entry_log_id=max(self.model.mark.next_entry_log_id, new + 1))

    def remove(self, count) -> None:
        batches = list(self.model.batches.values())[:count]
        self.both("remove_batches", [*batches, stored(9, 9, 9, 9)])

    def purge(self, ledger_ids) -> None:
        self.both("purge", sorted(ledger_ids))

    def limbo(self, unsettled) -> None:
        self.model.limbo = Limbo(99, 50, frozenset(unsettled)) if unsettled else None
        self.index.set_limbo(self.model.limbo)

    def reopen(self) -> None:
        self.index = self.open()

    def check(self) -> None:
        entries = {(ledger_id, 0) for ledger_id in LEDGERS}
        for one in self.model.batches.values():
            for entry_id in (one.first_entry_id - 1, one.first_entry_id + 1, one.last_entry_id, one.last_entry_id + 1):
                entries.add((one.ledger_id, max(0, entry_id)))
        self.model.check(self.index, sorted(entries), (*LEDGERS, 3))


@given(st.lists(_operations, max_size=12))
@examples(40)
def test_after_any_operations_the_index_answers_as_a_dict_does_and_finds_itself_whole(operations):
    run = Run()
    for name, *arguments in operations:
        getattr(run, name)(*arguments)
    run.check()
    run.reopen()
    run.check()


def _history(run: Run):
    """Every operation once, on something."""
    batches = [(1, 0, 50, DENSE), (1, 20, 60, IdPattern(3, 2, 1)), (2, 65_500, 60, DENSE), (17, 1 << 24, 5, DENSE)]
    yield "commit", batches, {2}
    yield "limbo", {5}
    yield "move", 0, False
    yield "commit", [(1, 0, 50, DENSE)], set()
    yield "move", 1, True
    yield "remove", 2
    yield "delete", 2, True
    yield "delete", 17, False
    yield "purge", {17}
    yield "limbo", set()


@pytest.mark.parametrize("step", range(10))
def test_a_crash_leaves_an_operation_done_or_not_done(step):
    """Cut at every call to the disk, which fall before, between and after the commits."""
    cuts = 0
    while True:
        cuts += 1
        run = Run()
        history = list(_history(run))
        for name, *arguments in history[:step]:
            getattr(run, name)(*arguments)
        name, *arguments = history[step]
        run.disk.stop_after(cuts)
        try:
            getattr(run, name)(*arguments)
        except MachineStops:
            run.disk.kill_process()
            run.reopen()
            assert _state(run.index) in _states_of(history, step), (name, cuts)
            assert sum(run.index.check(True))
        else:
            run.disk.stop_never()
            assert cuts > 3
            break


def _state(index):
    logs = [(one.file_id, one.state, one.live_bytes) for one in index.entry_logs()]
    return index.batches_from((-1, 0, 0), 999), index.summaries(-1, 999), logs, index.mark, index.limbo


def _states_of(history, step):
    """All states that the transactions of one operation pass through."""
    run = Run()
    for name, *arguments in history[:step]:
        getattr(run, name)(*arguments)
    found = [_state(run.index)]
    for method in ("commit", "move", "forget_log", "remove_batches", "purge", "set_limbo"):
        _record(run.index, method, found)
    name, *arguments = history[step]
    getattr(run, name)(*arguments)
    return found


def _record(index, method, found) -> None:
    plain = getattr(index, method)

    def recorded(*arguments):
        result = plain(*arguments)
        found.append(_state(index))
        return result

    setattr(index, method, recorded)
