"""What a tierer refuses, and what others refuse for its sake: one process, no faults. Ref: DESIGN.md, "Lake"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import pytest

from bk_spark.errors import ConfigError, CorruptionError, MetadataConflictError, StorageError
from bk_spark.lake.begin import begin_tier
from bk_spark.lake.ports import TableChange, TableFile, TableState
from bk_spark.lake.tierer import AgainError, Tierer, _Work
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.cleanup.vacuum import LogVacuum
from bk_spark.log.stored.tier_mark import StepName
from bk_spark.log.stored.values import CommitKind, Retention
from tests.simulation.engines.choices import SeededChoices
from tests.simulation.logs.clients import write_ledger
from tests.simulation.logs.lake import Lake, Row, SimulatedFiles, SimulatedTable
from tests.simulation.logs.ledgers import ZNODES
from tests.simulation.logs.tierers import give_lake, tierer_of
from tests.simulation.logs.world import DAY_MS, LOG, DuelWorld, Machine


def alone(body: Callable[[Machine], None]) -> None:
    """Three ledgers are in the log, and it has a tier."""

    def run(machine: Machine) -> None:
        machine.logs.set_retention(LOG, machine.world.uid, Retention(60))
        for number in range(3):
            append(machine, b"row %d" % number)
        begin_tier(machine.logs, LOG, machine.world.uid, "table")
        body(machine)

    world = DuelWorld(SeededChoices(1))
    give_lake(world)
    Machine("tierer", world, run)
    world.baton.run()


def append(machine: Machine, payload: bytes, kind: CommitKind = CommitKind.APPEND, remove: tuple[int, ...] = ()) -> None:
    job = machine.logs.jobs.begin(LOG)
    ledger = write_ledger(machine, job, [payload])
    machine.logs.commit_or_abort(job, CommitRequest(kind, (ledger,), remove=remove))


def listed(machine: Machine) -> list[int]:
    return [one.ledger_id for one in machine.logs.reader.snapshot(LOG).ledgers]


def payloads(lake: Lake) -> list[bytes]:
    return [payload for _, _, payload in lake.rows()]


def test_what_is_listed_is_tiered_and_what_is_truncated_leaves_the_table() -> None:
    def body(machine: Machine) -> None:
        assert tierer_of(machine).run(len)
        assert payloads(machine.world.the_lake) == [b"row 0", b"row 1", b"row 2"]
        assert not tierer_of(machine).run(len)
        machine.logs.truncate(LOG, machine.world.uid, listed(machine)[1])
        assert tierer_of(machine).run(len)
        assert payloads(machine.world.the_lake) == [b"row 1", b"row 2"]

    alone(body)


def test_after_an_overwrite_the_table_has_the_new_rows_alone() -> None:
    def body(machine: Machine) -> None:
        tierer_of(machine).run(len)
        append(machine, b"new", CommitKind.OVERWRITE)
        tierer_of(machine).run(len)
        assert payloads(machine.world.the_lake) == [b"new"]

    alone(body)


@pytest.mark.parametrize("kind", [CommitKind.COMPACT, CommitKind.REPLACE])
def test_tiered_ledgers_are_not_put_in_the_place_of_others(kind: CommitKind) -> None:
    def body(machine: Machine) -> None:
        tierer_of(machine).run(lambda waiting: 1)
        first, second, _ = listed(machine)
        with pytest.raises(MetadataConflictError, match=f"ledger {first}, which is to be replaced, is in the log's tier"):
            append(machine, b"row 0", kind, (first,))
        if kind is CommitKind.COMPACT:  # a duel has no replacements
            append(machine, b"row 1", kind, (second,))

    alone(body)


def test_released_ledgers_are_gone_from_bookies_and_read_from_the_table() -> None:
    def body(machine: Machine) -> None:
        tierer_of(machine).run(len)
        ids = listed(machine)
        tierer_of(machine).release(1)
        assert [one for one in ids if ZNODES.ledger(one) in machine.world.tree.newest] == []
        assert [one.as_py() for batch in machine.log.read() for one in batch.column("payload")] == [
            b"row 0",
            b"row 1",
            b"row 2",
        ]

    alone(body)


def _file_is_gone(lake: Lake) -> None:
    del lake.files[lake.newest.files[0].path]


def _row_is_changed(lake: Lake) -> None:
    path = lake.newest.files[0].path
    lake.files[path] = [(ledger, entry, payload + b"!") for ledger, entry, payload in lake.files[path]]


def _rows_are_deleted(lake: Lake) -> None:
    lake.put(replace(lake.newest, files=lake.newest.files[1:]))


@pytest.mark.parametrize("damage", [_file_is_gone, _row_is_changed, _rows_are_deleted])
def test_ledgers_stay_on_bookies_where_their_rows_are_not_whole_in_the_table(damage: Callable[[Lake], None]) -> None:
    def body(machine: Machine) -> None:
        tierer_of(machine).run(len)
        damage(machine.world.the_lake)
        with pytest.raises(CorruptionError):
            tierer_of(machine).release(1)
        assert all(ZNODES.ledger(one) in machine.world.tree.newest for one in listed(machine))

    alone(body)


def test_a_vacuum_leaves_the_ledgers_of_a_step_alone_until_it_is_done() -> None:
    def body(machine: Machine) -> None:
        def vacuum_first(*_: object) -> object:
            machine.logs.truncate(LOG, machine.world.uid, listed(machine)[2])
            machine.world.now_ms += DAY_MS
            assert LogVacuum(machine.logs).run(LOG).deleted_ledgers == 0
            return write(*_)

        write = files.write
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SimulatedFiles, "write", lambda self, *given: vacuum_first(self, *given))
            tierer_of(machine).run(len)
        machine.world.now_ms += DAY_MS
        assert LogVacuum(machine.logs).run(LOG).deleted_ledgers == 2

    files = SimulatedFiles
    alone(body)


def test_ledgers_stay_on_bookies_while_a_step_is_under_way() -> None:
    def body(machine: Machine) -> None:
        tierer_of(machine).run(len)
        lake = machine.world.the_lake
        lake.put(lake.states[0])
        with pytest.raises(MetadataConflictError, match="a step of its tier is under way, or its table was set back"):
            tierer_of(machine).release(1)
        assert all(ZNODES.ledger(one) in machine.world.tree.newest for one in listed(machine))

    alone(body)


def test_a_catalog_that_takes_no_commit_is_told_with_its_own_words() -> None:
    def body(machine: Machine) -> None:
        def refuse(*_: object) -> None:
            raise StorageError("committing to the table", "the disk is full")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SimulatedTable, "commit", refuse)
            with pytest.raises(MetadataConflictError, match=r"50 tries to tier it .* the disk is full"):
                tierer_of(machine).run(len)
        assert tierer_of(machine).run(len)

    alone(body)


def test_a_step_that_is_given_up_leaves_the_table_as_it_was_and_its_ledgers_to_the_next_one() -> None:
    def body(machine: Machine) -> None:
        tierer_of(machine).run(lambda waiting: 1)
        assert not tierer_of(machine).give_up()

        def fail(*_: object) -> object:
            raise StorageError("writing files", "the bucket is gone")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SimulatedFiles, "write", fail)
            with pytest.raises(StorageError, match="the bucket is gone"):
                tierer_of(machine).run(len)
        ids = listed(machine)
        with pytest.raises(MetadataConflictError, match="is in the log's tier"):
            append(machine, b"row 1", CommitKind.COMPACT, (ids[1],))
        assert tierer_of(machine).give_up()
        assert payloads(machine.world.the_lake) == [b"row 0"]
        append(machine, b"row 1", CommitKind.COMPACT, (ids[1],))
        assert tierer_of(machine).run(len)
        assert sorted(payloads(machine.world.the_lake)) == [b"row 0", b"row 1", b"row 2"]

    alone(body)


def test_a_late_commit_of_a_step_that_was_given_up_is_refused() -> None:
    def body(machine: Machine) -> None:
        late: list[Callable[[], bool]] = []

        def delay(self: SimulatedTable, base: TableState, change: TableChange) -> None:
            late.append(lambda: self.machine.world.the_lake.apply(base, change))
            raise StorageError("committing to the table", "no answer")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SimulatedTable, "commit", delay)
            with pytest.raises(MetadataConflictError):
                tierer_of(machine).run(len)
        assert tierer_of(machine).give_up()
        assert [one() for one in late] == [False] * len(late)
        assert payloads(machine.world.the_lake) == []

    alone(body)


def test_a_section_whose_record_is_missing_is_never_taken_for_one_without_the_ledger() -> None:
    def body(machine: Machine) -> None:
        tierer_of(machine).run(len)
        machine.session.delete(machine.logs.names.paths(machine.world.uid).tier_section(0))
        with pytest.raises(CorruptionError, match="section 0 of the tier of log 'duel' is damaged: it is missing"):
            machine.logs.reader.tier.find(LOG, machine.world.uid, listed(machine))

    alone(body)


def test_the_table_of_another_log_is_refused() -> None:
    def body(machine: Machine) -> None:
        lake = machine.world.the_lake
        lake.put(replace(lake.newest, log_uid="another"))
        with pytest.raises(ConfigError, match="it belongs to the log with the id another"):
            tierer_of(machine).run(len)

    alone(body)


@pytest.mark.parametrize("step", [StepName(9, "x", "y"), StepName(1, "x", "y")])
def test_a_table_with_steps_that_the_log_does_not_know_is_refused(step: StepName) -> None:
    def body(machine: Machine) -> None:
        tierer_of(machine).run(len)
        lake = machine.world.the_lake
        lake.put(replace(lake.newest, step=step))
        with pytest.raises(ConfigError, match="the metadata store was set back"):
            tierer_of(machine).run(len)

    alone(body)


def test_a_file_with_rows_of_others_too_is_never_removed() -> None:
    def body(machine: Machine) -> None:
        tierer_of(machine).run(len)
        lake = machine.world.the_lake
        lake.put(replace(lake.newest, files=tuple(replace(one, has_other_rows=True) for one in lake.newest.files)))
        append(machine, b"new", CommitKind.OVERWRITE)
        with pytest.raises(ConfigError, match="has rows of the log that are to be removed, and others"):
            tierer_of(machine).run(len)

    alone(body)


def _others_write(lake: Lake, *parts: list[Row]) -> None:
    """In the place of all files of the table."""
    paths = {f"others/{number}": part for number, part in enumerate(parts)}
    lake.files |= paths
    files = tuple(TableFile(path, len(part), has_log_rows=True, has_other_rows=False) for path, part in paths.items())
    lake.put(replace(lake.newest, files=files))


def test_a_ledger_that_others_split_over_two_files_goes_into_new_ones_whole() -> None:
    def body(machine: Machine) -> None:
        job = machine.logs.jobs.begin(LOG)
        long = write_ledger(machine, job, [b"long 0", b"long 1"])
        machine.logs.commit_or_abort(job, CommitRequest(CommitKind.APPEND, (long,)))
        append(machine, b"last")
        tierer_of(machine).run(len)
        lake = machine.world.the_lake
        rows = lake.rows()
        _others_write(lake, rows[:4], rows[4:])
        machine.logs.truncate(LOG, machine.world.uid, listed(machine)[2])
        tierer_of(machine).run(len)
        assert payloads(lake) == [b"row 2", b"long 0", b"long 1", b"last"]
        assert not [one for one in lake.newest.files if one.path.startswith("others/")]

    alone(body)


def test_rows_of_no_section_leave_a_file_that_others_wrote_while_the_table_was_set_back() -> None:
    def body(machine: Machine) -> None:
        lake = machine.world.the_lake
        tierer_of(machine).run(len)
        before = lake.newest
        machine.logs.truncate(LOG, machine.world.uid, listed(machine)[1])
        tierer_of(machine).run(len)
        lake.restore(before)
        _others_write(lake, lake.rows())
        for path in [one for one in lake.files if not one.startswith("others/")]:
            del lake.files[path]
        tierer_of(machine).run(len)
        assert payloads(lake) == [b"row 1", b"row 2"]

    alone(body)


def test_the_files_of_the_attempt_that_the_table_names_stay_though_a_newer_one_was_noted() -> None:
    def body(machine: Machine) -> None:
        stopped = patch.object(Tierer, "_done", side_effect=StorageError("the process", "it ends"))
        with stopped, pytest.raises(StorageError):
            tierer_of(machine).run(len)  # the table has its attempt, and the log does not know
        another = tierer_of(machine)
        stand = another._stored.read()
        assert stand.step is not None
        with pytest.raises(AgainError):
            another._write(_Work(stand, stand.step, another._present(stand)))
        another.run(len)
        machine.world.the_lake.check_files()
        assert payloads(machine.world.the_lake) == [b"row 0", b"row 1", b"row 2"]

    alone(body)
