"""What a bookie answers. Ref: docs/rules.md, storage rules 1, 4, 6, protocol rules 33, 37, 39."""

from __future__ import annotations

import shutil
import threading

import pytest

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.log_files.writer import RecordWriter
from bk_spark.entries.digest import master_key
from bk_spark.errors import ConfigError
from bk_spark.quorum import IdPattern
from bk_spark.wire.messages import ReadEnd, ReadRequest, Status, Verdict

OTHER_KEY = master_key(b"another")
SMALL, LARGE = 10, 2000


@pytest.fixture(params=[SMALL, LARGE], ids=["journalled", "direct"])
def size(request):
    """Payload bytes: five entries of the one go to the journal, of the other into the entry log."""
    return request.param


def test_an_added_batch_is_read_back_before_and_after_a_restart(harness, size):
    harness.start()
    assert harness.add(1, 0, 4, size=size).status is Status.OK
    harness.assert_holds(1, 0, 4, size=size)
    harness.restart()
    harness.assert_holds(1, 0, 4, size=size)


def test_an_acked_batch_survives_a_kill(harness, size):
    """Situation 53."""
    harness.start()
    harness.add(1, 0, 4, size=size)
    harness.kill()
    harness.start()
    harness.assert_holds(1, 0, 4, size=size)
    harness.kill()
    harness.start()
    harness.assert_holds(1, 0, 4, size=size)


def test_small_adds_are_written_to_the_journal_and_large_ones_only_once(harness):
    harness.start()
    harness.add(1, 0, 4, size=LARGE)
    assert harness.files("journal") == []
    harness.add(1, 5, 5)
    assert len(harness.files("journal")) == 1


def test_an_entry_that_was_never_added_is_denied_and_the_ones_before_it_are_sent(harness, size):
    harness.start()
    harness.add(1, 0, 4, size=size)
    found, end = harness.payloads(1, 3, 9)
    assert sorted(found) == [3, 4]
    assert (end.status, end.next_entry_id) == (Status.NO_SUCH_ENTRY, 5)


def test_a_ledger_that_was_never_seen_is_denied(harness):
    harness.start()
    harness.add(1, 0, 4)
    assert harness.read(2, 0, 0)[1].status is Status.NO_SUCH_LEDGER
    assert harness.confirmed(2).status is Status.NO_SUCH_LEDGER


def test_a_wrong_password_is_refused_for_adds_and_reads_also_after_a_restart(harness):
    harness.start()
    harness.add(1, 0, 4)
    for _ in range(2):
        assert harness.add(1, 5, 9, key=OTHER_KEY).status is Status.UNAUTHORIZED
        assert harness.read(1, 0, 4, key=OTHER_KEY) == ([], harness.read(1, 0, 4, key=OTHER_KEY)[1])
        assert harness.read(1, 0, 4, key=OTHER_KEY)[1].status is Status.UNAUTHORIZED
        harness.restart()
    assert harness.read(1, 5, 5)[1].status is Status.NO_SUCH_ENTRY


def test_a_ledger_whose_only_add_was_large_keeps_its_password_after_a_kill(harness):
    harness.start()
    harness.add(1, 0, 4, size=LARGE)
    harness.kill()
    harness.start()
    assert harness.add(1, 5, 9, key=OTHER_KEY).status is Status.UNAUTHORIZED


def test_a_request_for_another_bookie_is_refused_and_stores_nothing(harness):
    harness.start()
    assert harness.add(1, 0, 4, bookie_id="bookie-2").status is Status.WRONG_BOOKIE
    assert harness.read(1, 0, 4)[1].status is Status.NO_SUCH_LEDGER
    request = ReadRequest("bookie-2", 1, harness.key, 0, 4, IdPattern(1, 1, 0), 1000)
    assert [reply.status for reply in harness.bookie.read(request)] == [Status.WRONG_BOOKIE]


def test_a_data_directory_serves_one_bookie_at_a_time(harness):
    harness.start()
    with pytest.raises(ConfigError, match="another process uses it"):
        harness.start()


def test_an_index_of_another_bookie_is_refused(harness):
    harness.start()
    harness.stop()
    with pytest.raises(ConfigError, match=r"ledgers\.sqlite is 'bookie-1': .* not of bookie-2"):
        Bookie.open(harness.data_dir, "bookie-2", harness.config)


def test_a_log_file_of_another_bookie_is_refused(harness, tmp_path):
    harness.start()
    harness.add(1, 0, 4)
    harness.kill()
    (name,) = (path.name for path in harness.files("journal"))
    other = tmp_path / "other"
    other.mkdir()
    Bookie.open(other, "bookie-2", harness.config).close()
    shutil.copy(harness.data_dir / "journal" / name, other / "journal" / name)
    with pytest.raises(ConfigError, match=r"journal is 'bookie-1': .* not of bookie-2"):
        Bookie.open(other, "bookie-2", harness.config)


def test_refusals_come_out_of_the_same_sync_as_the_adds(harness):
    harness.start()
    harness.stage(harness.batch(1, 0, 4))
    harness.stage(harness.batch(1, 5, 9), key=OTHER_KEY)
    assert [reply.status for reply in harness.sync()] == [Status.OK, Status.UNAUTHORIZED]
    assert harness.sync() == []


def test_the_budget_ends_a_read_and_it_can_be_continued(harness, size):
    harness.start()
    for first in range(0, 50, 5):
        harness.add(1, first, first + 4, size=size)
    position, reads, found = 0, 0, {}
    while position < 50:
        part, end = harness.payloads(1, position, 49, budget=len(harness.batch(1, 0, 4, size=size).body) * 2 + 300)
        assert (end.status, end.next_entry_id) == (Status.OK, max(part) + 1)
        found, position, reads = found | part, end.next_entry_id, reads + 1
    assert (sorted(found), reads) == (list(range(50)), 5)


def test_a_read_gives_at_least_one_batch_however_small_the_budget(harness):
    harness.start()
    harness.add(1, 0, 4, size=LARGE)
    assert sorted(harness.payloads(1, 0, 4, budget=1)[0]) == [0, 1, 2, 3, 4]


def test_a_read_is_cut_to_the_asked_range(harness, size):
    harness.start()
    harness.add(1, 0, 9, size=size)
    found, end = harness.payloads(1, 3, 6)
    assert (sorted(found), end) == ([3, 4, 5, 6], ReadEnd(Status.OK, 7))


def test_a_striped_ledger_is_read_with_the_ids_of_its_slot(harness, size):
    harness.start()
    pattern = IdPattern(4, 3, 2)
    harness.stage(harness.batch(1, 0, 19, size=size, pattern=pattern))
    harness.sync()
    held = [one for one in range(20) if pattern.holds(one)]
    found, end = harness.payloads(1, 0, 19, pattern=pattern)
    assert (sorted(found), end) == (held, ReadEnd(Status.OK, 20))
    missing = next(one for one in range(20) if not pattern.holds(one))
    assert harness.payloads(1, missing, missing)[1].status is Status.NO_SUCH_ENTRY
    found, end = harness.payloads(1, 0, 19)
    assert (end.status, end.next_entry_id) == (Status.NO_SUCH_ENTRY, missing)


def test_an_entry_is_found_though_a_smaller_batch_was_added_over_a_part_of_its_own(harness, size, expected_payload):
    """Storage rule 1: the row with the greatest first id is not the one to ask."""
    harness.start()
    harness.add(1, 0, 99, size=size, tag=1)
    harness.add_over(1, 10, 19, size=size, tag=2)
    for _ in range(2):
        found, end = harness.payloads(1, 0, 99)
        assert end == ReadEnd(Status.OK, 100)
        assert found == {one: expected_payload(1, one, size, 2 if 10 <= one <= 19 else 1) for one in range(100)}
        harness.restart()


@pytest.mark.parametrize("steps", [[], ["sync"], ["sync", "restart"]], ids=["staged", "synced", "indexed"])
def test_a_batch_that_comes_again_is_acked_and_stored_once(harness, size, steps):
    harness.start()
    harness.stage(harness.batch(1, 0, 4, size=size))
    for step in steps:
        getattr(harness, step)()
    before = sum(path.stat().st_size for kind in ("journal", "entry_log") for path in harness.files(kind))
    harness.stage(harness.batch(1, 0, 4, size=size))
    assert {reply.status for reply in harness.sync()} == {Status.OK}
    after = sum(path.stat().st_size for kind in ("journal", "entry_log") for path in harness.files(kind))
    assert after == before or not steps
    harness.assert_holds(1, 0, 4, size=size)
    harness.stop()
    assert sum(path.stat().st_size for path in harness.files("entry_log")) < 4096 * 2 + 6 * size + 2000


def test_the_last_add_confirmed_is_the_highest_seen_and_survives_restarts_and_kills(harness, size):
    harness.start()
    harness.add(1, 5, 9, size=size)
    harness.add(1, 0, 4, size=size)
    for step in (lambda: None, harness.kill, harness.stop):
        step()
        if harness.bookie is None:
            harness.start()
        reply = harness.confirmed(1)
        assert (reply.status, reply.last_add_confirmed) == (Status.OK, 4)


def test_a_reader_that_meets_a_staged_entry_waits_for_its_sync(harness, size):
    """Storage rule 4."""
    harness.start()
    harness.stage(harness.batch(1, 0, 4, size=size))
    answers = []
    reader = threading.Thread(target=lambda: answers.append(harness.payloads(1, 0, 4)))
    reader.start()
    reader.join(0.05)
    assert answers == []
    harness.sync()
    reader.join(10)
    assert sorted(answers[0][0]) == [0, 1, 2, 3, 4]


def test_a_reader_of_an_entry_whose_sync_failed_is_told_that_it_is_unknown(harness, size):
    harness.start()
    harness.add(2, 0, 4, size=size)
    harness.stage(harness.batch(1, 0, 4, size=size))
    harness.disk.fail("sync", "")
    assert [reply.status for reply in harness.sync()] == [Status.IO_ERROR]
    assert harness.read(1, 0, 4)[1].status is Status.UNKNOWN
    harness.assert_holds(2, 0, 4, size=size)


def test_after_a_failed_write_nothing_is_denied(harness, size):
    """What was written may be found at the next start."""
    harness.start()
    harness.add(1, 0, 4, size=size)
    harness.disk.fail("write", "")
    assert harness.add(1, 5, 9, size=size).status is Status.IO_ERROR
    for ledger_id, entry_id in ((1, 5), (1, 100), (2, 0)):
        assert harness.read(ledger_id, entry_id, entry_id)[1].status.verdict is Verdict.UNKNOWN
    harness.assert_holds(1, 0, 4, size=size)


def test_after_a_failed_sync_nothing_is_acked_until_a_restart(harness, size):
    """Storage rule 6: the second fdatasync would return success."""
    harness.start()
    harness.add(1, 0, 4, size=size)
    harness.disk.fail("sync", "")
    assert harness.add(1, 5, 9, size=size).status is Status.IO_ERROR
    harness.disk.failing.clear()
    assert harness.add(1, 5, 9, size=size).status is Status.IO_ERROR
    assert harness.add(1, 10, 14, size=size).status is Status.IO_ERROR
    harness.restart()
    harness.assert_holds(1, 0, 4, size=size)
    assert harness.add(1, 5, 9, size=size).status is Status.OK


def test_after_an_assertion_of_the_storage_nothing_is_acked_until_a_restart(harness, monkeypatch, size):
    """It goes up through the sync thread, which ends the bookie. What shares the storage meanwhile is told, too."""
    harness.start()
    harness.add(1, 0, 4, size=size)
    with monkeypatch.context() as patch:
        patch.setattr(RecordWriter, "_push", lambda *_: None)
        with pytest.raises(AssertionError):
            harness.stage(harness.batch(1, 5, 9, size=size))
    assert harness.sync() == []
    refused = harness.add(1, 5, 9, size=size)
    assert refused.status is Status.IO_ERROR
    assert "after: AssertionError()" in refused.detail
    assert harness.read(1, 5, 5)[1].status.verdict is Verdict.UNKNOWN
    harness.kill()
    harness.start()
    harness.assert_holds(1, 0, 4, size=size)
    assert harness.add(1, 5, 9, size=size).status is Status.OK


def test_a_bookie_that_lapses_during_a_sync_acknowledges_nothing_of_it(harness):
    bookie = harness.start()
    harness.stage(harness.batch(1, 0, 4))
    harness.stage_fence(2)
    harness.stage(harness.batch(3, 0, 4), deferred_sync=True)
    bookie.ask_lapse(lambda: "its epoch has not moved")
    assert [reply.status for reply in harness.early()] == [Status.UNKNOWN]
    for reply in harness.sync():
        assert (reply.status, reply.detail) == (Status.UNKNOWN, "its epoch has not moved")
    bookie.ask_lapse(lambda: "")
    assert harness.add(4, 0, 4).status is Status.OK


def test_many_small_files_are_rolled_and_all_is_read_after_a_kill(harness, size):
    harness.start(journal_file_bytes=6000, entry_log_file_bytes=15000)
    for first in range(0, 200, 5):
        assert harness.add(1, first, first + 4, size=size).status is Status.OK
    harness.kill()
    harness.start()
    harness.assert_holds(1, 0, 199, size=size)
    harness.restart()
    harness.assert_holds(1, 0, 199, size=size)


def test_a_description_tells_the_space_of_the_disk(harness):
    description = harness.start().describe()
    assert (description.status, description.bookie_id) == (Status.OK, "bookie-1")
    assert 0 < description.free_bytes <= description.total_bytes


def test_a_description_tells_each_directory_once_with_its_uses(harness):
    [directory] = harness.start().describe().directories
    assert directory.holds_entries
    assert set(directory.uses.split()) >= {"data", "journal-0", "entry_log-0"}
    assert 0 < directory.free_bytes <= directory.total_bytes
