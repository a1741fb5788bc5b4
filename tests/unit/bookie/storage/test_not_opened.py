"""A file that cannot be opened for lack of descriptors: nothing was written, so nothing may be lost.

Ref: docs/rules.md, storage rule 17.
"""

from __future__ import annotations

import os

import pytest

from bk_spark.errors import NotOpenedError
from bk_spark.wire.messages import Status

LARGE = 5000


@pytest.fixture(params=["journal", "entry_log"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def size_of(kind: str) -> int:
    return 10 if kind == "journal" else LARGE


def test_an_add_whose_file_cannot_be_opened_is_refused_and_the_next_one_is_stored(harness, kind, caplog):
    harness.start()
    harness.disk.fail("open", kind)
    for first in (0, 5, 10):
        refused = harness.add(1, first, first + 4, size=size_of(kind))
        assert refused.status is Status.IO_ERROR
        assert "Too many open files" in refused.detail
        assert harness.bookie.failure is None
        assert harness.read(1, first, first)[1].status in (Status.NO_SUCH_LEDGER, Status.NO_SUCH_ENTRY)
    harness.disk.failing.clear()
    assert harness.add(1, 0, 4, size=size_of(kind)).status is Status.OK
    harness.assert_holds(1, 0, 4, size=size_of(kind))
    harness.kill()
    harness.start()
    harness.assert_holds(1, 0, 4, size=size_of(kind))
    assert harness.bookie.limbo is None
    assert [record.getMessage() for record in caplog.records if "Too many open files" in record.getMessage()]


def test_a_roll_whose_next_file_cannot_be_opened_leaves_the_sealed_one_whole(harness, kind):
    settings = {"journal_file_bytes": 8000, "entry_log_file_bytes": 8000}
    harness.start(**settings)
    size, first = size_of(kind), 0
    harness.add(1, 0, 0, size=size)
    harness.disk.fail("open", kind)
    while harness.add(1, first + 1, first + 1, size=size).status is Status.OK:
        first += 1
    assert harness.add(1, first + 1, first + 1, size=size).status is Status.IO_ERROR
    harness.disk.failing.clear()
    assert harness.add(1, first + 1, first + 1, size=size).status is Status.OK
    harness.kill()
    harness.start()
    harness.assert_holds(1, 0, first + 1, size=size)


def test_a_fence_whose_journal_cannot_be_opened_is_refused_and_does_not_hold(harness):
    harness.start()
    harness.disk.fail("open", "journal")
    assert harness.fence(1).status is Status.IO_ERROR
    harness.disk.failing.clear()
    assert harness.add(1, 0, 4).status is Status.OK
    assert harness.fence(1).status is Status.OK
    assert harness.add(1, 5, 9).status is Status.FENCED


@pytest.mark.parametrize("part", ["entry_log", "generation"])
def test_a_checkpoint_that_cannot_open_a_file_is_done_again(harness, part):
    harness.start()
    harness.add(1, 0, 4)
    harness.disk.fail("open", part)
    with pytest.raises(NotOpenedError):
        harness.bookie.storage.checkpoint()
    harness.assert_holds(1, 0, 4)
    assert harness.add(1, 5, 9).status is Status.OK
    harness.disk.failing.clear()
    harness.bookie.storage.checkpoint()
    assert harness.bookie.storage.cache_bytes == (0, 0)
    assert harness.bookie.storage.batches_from((-1, -1, -1), 10)
    harness.assert_holds(1, 0, 9)
    harness.kill()
    harness.start()
    harness.assert_holds(1, 0, 9)


def test_a_checkpoint_that_cannot_list_its_journals_counts_and_the_next_one_deletes_them(harness, monkeypatch):
    harness.start(journal_file_bytes=6000)
    for first in range(0, 60, 3):
        harness.add(1, first, first + 2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", _refuse)
        harness.bookie.storage.checkpoint()
    assert len(harness.files("journal")) > 1
    harness.add(1, 60, 62)
    harness.bookie.storage.checkpoint()
    assert len(harness.files("journal")) == 1
    harness.assert_holds(1, 0, 62)


def _refuse(_: object) -> list[str]:
    raise OSError(24, os.strerror(24))


def test_adds_are_refused_while_a_checkpoint_waits_for_a_descriptor_and_the_cache_behind_it_is_full(harness, held_background):
    """The caches stay bounded."""
    harness.background = held_background
    harness.start(write_cache_bytes=20_000)
    harness.disk.fail("open", "entry_log")
    first = 0
    while harness.add(1, first, first, size=1000).status is Status.OK:
        held_background.run()
        first += 1
        assert first < 100
    assert first > 10
    assert sum(harness.bookie.storage.cache_bytes) < 50_000
    assert harness.bookie.failure is None
    harness.disk.failing.clear()
    assert harness.add(1, first, first, size=1000).status is Status.OK
    held_background.run()
    harness.assert_holds(1, 0, first, size=1000)


def test_a_stop_that_cannot_open_a_file_says_so_and_loses_nothing(harness):
    harness.start()
    harness.add(1, 0, 4)
    harness.disk.fail("open", "entry_log")
    with pytest.raises(NotOpenedError, match="Too many open files"):
        harness.bookie.close()
    harness.disk.failing.clear()
    harness.bookie = None
    harness.start()
    harness.assert_holds(1, 0, 4)


def test_a_force_without_the_journal_that_cannot_open_a_file_is_unknown_and_can_be_repeated(harness):
    harness.start(journal_write_data=False)
    harness.add(1, 0, 4)
    harness.disk.fail("open", "entry_log")
    assert harness.force(1).status is Status.IO_ERROR
    harness.disk.failing.clear()
    assert harness.force(1).status is Status.OK
    harness.kill()
    harness.start()
    harness.assert_holds(1, 0, 4)
