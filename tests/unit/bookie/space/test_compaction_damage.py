"""Compaction of damaged logs: no live record is lost with them. Protocol rules 39 and 42, situations 61 and 63."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from bk_spark.bookie.index.values import StoredBatch
from bk_spark.errors import StorageError
from tests.unit.bookie.space.gc_bookie import DATA_DIR, CollectedBookie


@pytest.fixture
def bookie() -> Iterator[CollectedBookie]:
    made = CollectedBookie()
    yield made
    made.bookie.close()


def _flip(bookie: CollectedBookie, file_id: int, offset: int) -> None:
    content = bookie.disk._names[str(DATA_DIR / "entry_log" / f"{file_id:010d}.log")]
    content.data[offset] ^= 0x10


def test_a_live_record_that_is_damaged_keeps_its_log_and_goes_to_the_scrub(bookie: CollectedBookie) -> None:
    bookie.fill_mixed()
    victim = bookie.batches(1)[0]
    assert victim.location is not None
    _flip(bookie, victim.location.file_id, victim.location.offset + 200)
    bookie.compact(0.8)
    assert bookie.damaged == [victim]
    assert victim.location.file_id in bookie.files()
    assert bookie.batches(1)[0] == victim
    assert bookie.logs()[victim.location.file_id].live_bytes == victim.location.length
    for ledger_id in (3, 5):
        assert len(bookie.payloads(ledger_id, 30)[0]) == 31
    assert bookie.compact(0.8).logs_deleted == 0
    assert bookie.damaged == [victim]


def test_a_record_that_is_not_what_its_row_says_is_damaged(bookie: CollectedBookie, monkeypatch: pytest.MonkeyPatch) -> None:
    bookie.fill_mixed()
    wrong = replace(bookie.batches(1)[0], body_crc32c=1)
    storage = bookie.bookie.storage
    look_up = storage.find

    def stored(*key: int) -> StoredBatch | None:
        return wrong if key == (wrong.ledger_id, wrong.first_entry_id, wrong.sequence) else look_up(*key)

    monkeypatch.setattr(storage, "find", stored)
    bookie.compact(0.8)
    assert wrong.location is not None
    assert (bookie.damaged, wrong.location.file_id in bookie.files()) == ([wrong], True)


def test_a_damaged_log_goes_once_its_live_records_were_repaired(bookie: CollectedBookie) -> None:
    bookie.fill_mixed()
    victim = bookie.batches(1)[0]
    assert victim.location is not None
    _flip(bookie, victim.location.file_id, victim.location.offset + 200)
    bookie.compact(0.8)
    bookie.add(1, victim.first_entry_id, victim.last_entry_id)
    bookie.checkpoint()
    bookie.bookie.storage.remove_batches([victim])
    assert bookie.compact(0.0).logs_deleted == 1
    assert victim.location.file_id not in bookie.files()
    bookie.check()


def test_a_damaged_header_hides_no_live_record(bookie: CollectedBookie) -> None:
    """Its stored batch cannot be looked up by key then: the index is asked who still points into the log."""
    bookie.fill_mixed()
    victim = bookie.batches(3)[1]
    assert victim.location is not None
    _flip(bookie, victim.location.file_id, victim.location.offset + 50)
    bookie.compact(0.8)
    assert bookie.damaged == [victim]
    assert victim.location.file_id in bookie.files()
    assert [stored for stored in bookie.batches(3) if stored.location.file_id == victim.location.file_id] == [victim]
    assert len(bookie.payloads(5, 30)[0]) == 31


def test_damage_in_a_dead_record_keeps_nothing(bookie: CollectedBookie) -> None:
    bookie.fill(1, 2, entries=8)
    bookie.seal()
    victim = bookie.batches(2)[1]
    assert victim.location is not None
    bookie.delete(2)
    bookie.checkpoint()
    _flip(bookie, victim.location.file_id, victim.location.offset + 50)
    bookie.compact(0.8)
    assert (bookie.damaged, victim.location.file_id in bookie.files()) == ([], False)
    bookie.check()


def test_a_log_with_a_damaged_file_header_keeps_all_its_live_records(bookie: CollectedBookie) -> None:
    bookie.fill_mixed()
    victim = bookie.batches(1)[0].location
    assert victim is not None
    bookie.restart()  # nothing remembers the header
    _flip(bookie, victim.file_id, 20)
    live = [
        stored for stored in bookie.bookie.storage.batches_from((-1, -1, -1), 1000) if stored.location.file_id == victim.file_id
    ]
    bookie.compact(0.8)
    assert (bookie.damaged, victim.file_id in bookie.files()) == (live, True)


def test_a_log_that_is_missing_is_not_forgotten_while_rows_refer_to_it(bookie: CollectedBookie) -> None:
    bookie.fill_mixed()
    victim = bookie.batches(1)[0].location
    assert victim is not None
    bookie.bookie.storage.log_files.delete(victim.file_id)
    bookie.compact(0.8)
    assert {stored.location.file_id for stored in bookie.damaged} == {victim.file_id}
    assert bookie.logs()[victim.file_id].live_bytes > 0


def test_a_log_that_the_disk_refuses_to_read_does_not_keep_others_from_being_compacted(
    bookie: CollectedBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie.fill_mixed()
    victim = bookie.batches(1)[0].location
    assert victim is not None
    logs = bookie.bookie.storage.log_files
    scan = logs.scan

    def refuse(file_id: int, **more: bool) -> object:
        if file_id == victim.file_id:
            raise StorageError("reading", "input/output error")
        return scan(file_id, **more)

    monkeypatch.setattr(logs, "scan", refuse)
    assert bookie.compact(0.8).logs_deleted > 1
    assert victim.file_id in bookie.files()
    assert {stored.location.file_id for stored in bookie.damaged} == {victim.file_id}
    bookie.check()


def test_a_search_of_the_index_that_is_told_to_stop_unlinks_nothing(bookie: CollectedBookie) -> None:
    """For the live stored batches of a log with a gap; the next pass does it all."""
    bookie.fill_mixed()
    victim = bookie.batches(3)[1]
    assert victim.location is not None
    _flip(bookie, victim.location.file_id, victim.location.offset + 50)
    storage = bookie.bookie.storage
    stopped = False
    batches_from = storage.batches_from

    def stop_then_search(*one: object) -> list[StoredBatch]:
        nonlocal stopped
        stopped = True
        return batches_from(*one)

    storage.batches_from = stop_then_search  # type: ignore[method-assign]
    assert not bookie.compact(0.8, lambda: not stopped).is_compacted
    assert (bookie.damaged, victim.location.file_id in bookie.files()) == ([], True)
    storage.batches_from = batches_from  # type: ignore[method-assign]
    assert bookie.compact(0.8).is_compacted
    assert (bookie.damaged, victim.location.file_id in bookie.files()) == ([victim], True)


def test_a_log_with_a_gap_is_not_unlinked_on_a_count_alone(bookie: CollectedBookie, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol rule 42: the index, by a wrong count, would call it dead."""
    bookie.fill_mixed()
    victim = bookie.batches(3)[1]
    assert victim.location is not None
    _flip(bookie, victim.location.file_id, victim.location.offset + 50)
    storage = bookie.bookie.storage
    move = storage.move
    monkeypatch.setattr(storage, "move", lambda moves, files, emptied: move(moves, files, emptied) or emptied > 0)
    bookie.compact(0.8)
    assert victim.location.file_id in bookie.files()


def test_each_damaged_record_is_reported_once(bookie: CollectedBookie) -> None:
    """One by its header, one by its body, in one log."""
    bookie.fill_mixed()
    by_header, by_body = bookie.batches(3)[0], bookie.batches(1)[0]
    for stored, offset in ((by_header, 50), (by_body, 200)):
        assert stored.location is not None
        _flip(bookie, stored.location.file_id, stored.location.offset + offset)
    bookie.compact(0.8)
    assert by_header.location.file_id == by_body.location.file_id  # type: ignore[union-attr]
    assert sorted(bookie.damaged, key=lambda stored: stored.ledger_id) == [by_body, by_header]
