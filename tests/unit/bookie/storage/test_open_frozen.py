"""A start on a full disk: all is replayed and served, and nothing new is written. Ref: docs/rules.md, storage rule 18."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.directories import Directories
from bk_spark.bookie.index.sqlite_index import open_index
from bk_spark.bookie.index.values import Limbo
from bk_spark.bookie.log_files.record import RECORD_HEADER_BYTES
from bk_spark.bookie.storage.checkpoint import run_inline
from bk_spark.bookie.storage.open_storage import OpenOptions
from bk_spark.errors import CorruptionError, StorageError
from bk_spark.wire.messages import Status
from tests.unit.bookie.harness import BOOKIE_ID, Harness

LARGE = 5000


def open_frozen(harness: Harness, *, loss: str = "", highest_issued: Callable[[], int] | None = None) -> Bookie:
    directories = Directories.of(harness.data_dir, harness.config)
    options = OpenOptions(open_index, 10.0, run_inline, loss, highest_issued)
    problem = StorageError("writing", os.strerror(errno.ENOSPC))
    harness.bookie = Bookie.open_frozen(directories, BOOKIE_ID, harness.config, harness.disk, options, problem)
    return harness.bookie


def contents(data_dir: Path) -> dict[str, bytes]:
    return {str(path.relative_to(data_dir)): path.read_bytes() for path in data_dir.rglob("*") if path.is_file()}


@pytest.fixture
def killed(harness: Harness) -> Harness:
    """It had entries in the index, in an entry log and in a journal, and fences."""
    harness.start()
    harness.add(1, 0, 4)
    harness.bookie.storage.checkpoint()
    harness.add(1, 5, 9)
    harness.add(2, 0, 4, size=LARGE)
    harness.fence(2)
    harness.kill()
    return harness


def test_all_that_was_durable_is_served_and_no_file_changes_though_nothing_can_be_written(killed: Harness) -> None:
    before = contents(killed.data_dir)
    killed.disk.fail("write", "")
    for _ in range(2):
        bookie = open_frozen(killed)
        killed.assert_holds(1, 0, 9)
        killed.assert_holds(2, 0, 4, size=LARGE)
        assert killed.confirmed(2).is_fenced
        assert bookie.limbo is None
        assert not bookie.may_forget
        bookie.close()
    assert contents(killed.data_dir) == before


def test_nothing_is_taken_and_nothing_is_denied(killed: Harness) -> None:
    bookie = open_frozen(killed)
    assert bookie.failure is not None
    assert killed.add(1, 10, 14).status is Status.IO_ERROR
    assert killed.add(1, 10, 14, recovery=True).status is Status.IO_ERROR
    assert killed.fence(1).status is Status.IO_ERROR
    assert killed.read(1, 10, 10)[1].status is Status.IO_ERROR
    assert killed.read(3, 0, 0)[1].status is Status.IO_ERROR
    assert killed.confirmed(3).status is Status.IO_ERROR


def test_with_space_the_next_start_finds_everything_as_it_was(killed: Harness) -> None:
    open_frozen(killed).close()
    killed.start()
    killed.assert_holds(1, 0, 9)
    assert killed.add(2, 5, 9).status is Status.FENCED
    assert killed.add(1, 10, 14).status is Status.OK


def test_a_generation_file_that_is_behind_its_index_is_no_obstacle(killed: Harness) -> None:
    """The disk was full right after the index had committed."""
    generation = killed.data_dir / "index" / "generation"
    older = generation.read_bytes()
    killed.start()
    killed.add(1, 10, 14)
    killed.bookie.storage.checkpoint()
    killed.kill()
    (killed.data_dir / "index" / "generation").write_bytes(older)
    killed.disk.fail("write", "")
    open_frozen(killed)
    killed.assert_holds(1, 0, 14)


@pytest.mark.parametrize("is_known", [True, False], ids=["known to the caller", "found by the replay"])
def test_after_a_possible_loss_it_is_in_limbo_in_memory_and_the_next_start_finds_the_loss_again(
    killed: Harness, is_known: bool
) -> None:
    if not is_known:
        (path,) = killed.files("journal")
        data = bytearray(path.read_bytes())
        data[-RECORD_HEADER_BYTES - 100] ^= 1  # in a batch, before the fence
        path.write_bytes(data)
    loss = "a disk was lost" if is_known else ""
    with pytest.raises(CorruptionError):
        open_frozen(killed, loss=loss)
    bookie = open_frozen(killed, loss=loss, highest_issued=lambda: 9)
    assert bookie.limbo == Limbo(9)
    assert killed.confirmed(1).status is Status.UNKNOWN
    bookie.close()
    killed.highest_issued = lambda: 9
    assert killed.start(possible_loss=loss).limbo == Limbo(9)


def test_no_file_that_is_there_would_be_written_over_though_something_were_appended(killed: Harness) -> None:
    """Nothing may append to a frozen storage; if something does, it begins files of new names."""
    before = contents(killed.data_dir)
    bookie = open_frozen(killed)
    marked = bookie.storage.log_files.mark()
    ids = [int(Path(name).stem) for name in before if name.endswith((".log", ".journal"))]
    assert min(marked.next_journal_id, marked.next_entry_log_id) > 0
    assert max(marked.next_journal_id, marked.next_entry_log_id) > max(ids)
    bookie.close()
    assert {name: data for name, data in contents(killed.data_dir).items() if name in before} == before


def test_limbo_reaches_ledgers_that_only_the_journal_tells_of(killed: Harness) -> None:
    """The metadata store may have gone back, and know of fewer ids than are here."""
    assert open_frozen(killed, loss="a disk was lost", highest_issued=lambda: 0).limbo == Limbo(2)
