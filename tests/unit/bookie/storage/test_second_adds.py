"""A second add of entry ids that are stored: the same entries again, or others."""

from __future__ import annotations

import logging
from dataclasses import replace

import pyarrow as pa
import pytest

from bk_spark.bookie import bookie
from bk_spark.bookie.log_files.entry_log_files import EntryLogFiles
from bk_spark.config import DigestType
from bk_spark.entries.apache_entries import apache_entries, encode_apache
from bk_spark.entries.batch import decode, encode, seal
from bk_spark.entries.crc import crc32c
from bk_spark.entries.digest import Digester
from bk_spark.errors import CorruptionError
from bk_spark.quorum import IdPattern
from bk_spark.wire.messages import Status
from tests.unit.bookie.harness import DIGESTER, payload

LARGE = 5000
WAYS = {
    "staged": (),
    "synced": ("sync",),
    "in the index": ("sync", "restart"),
    "replayed": ("sync", "kill", "start"),
}


@pytest.fixture(params=[10, LARGE], ids=["journalled", "direct"])
def size(request):
    return request.param


@pytest.fixture(params=[True, False], ids=["with the journal", "without"])
def journal(request):
    return request.param


def batch_with(ledger_id, first, last, *, lac, size=10, tag=0, digester=DIGESTER):
    """The entries of ``Harness.batch`` with another last add confirmed, as a recovery sends them."""
    payloads = pa.array([payload(ledger_id, one, size, tag) for one in range(first, last + 1)], pa.binary())
    sealed = seal(digester, ledger_id, first, payloads, length_before=first * size, last_add_confirmed=lac)
    encoded = encode(sealed, digester.digest_type)
    assert encoded is not None
    return encoded


def reply_to(harness, batch, **flags):
    harness.stage(batch, **flags)
    return harness.sync()[-1]


def file_bytes(harness):
    return sum(path.stat().st_size for kind in ("journal", "entry_log") for path in harness.files(kind))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("recovery", [False, True], ids=["writer", "recovery"])
def test_other_content_for_a_stored_id_is_refused_and_what_is_stored_stays(harness, size, journal, way, recovery):
    """Protocol rule 33."""
    if not journal and way == "replayed":
        pytest.skip("a kill without the journal may lose what is compared here")
    harness.start(journal_write_data=journal)
    harness.stage(harness.batch(1, 0, 9, size=size))
    for step in WAYS[way]:
        getattr(harness, step)()
    for first, last in ((0, 9), (3, 3), (9, 12), (0, 20)):
        reply = reply_to(harness, harness.batch(1, first, last, size=size, tag=1), recovery=recovery)
        assert reply.status is Status.BAD_REQUEST
        assert reply.detail == f"another entry is stored under an id from {first} to {last} of ledger 1"
    harness.assert_holds(1, 0, 9, size=size)
    assert harness.read(1, 10, 10)[1].status is Status.NO_SUCH_ENTRY
    assert harness.confirmed(1).last_add_confirmed == -1


@pytest.mark.parametrize("way", WAYS)
def test_the_same_entries_again_are_acked_and_not_stored_again_however_they_are_cut(harness, size, way):
    harness.start()
    for first in range(0, 10, 2):
        harness.stage(batch_with(1, first, first + 1, lac=-1, size=size))
    for step in WAYS[way]:
        getattr(harness, step)()
    harness.bookie.storage.sync()
    before = file_bytes(harness)
    for first, last in ((0, 9), (4, 4), (1, 8), (0, 1)):
        assert reply_to(harness, batch_with(1, first, last, lac=-1, size=size)).status is Status.OK
    assert file_bytes(harness) == before
    harness.assert_holds(1, 0, 9, size=size)


@pytest.mark.parametrize("way", WAYS)
def test_a_recovery_adds_the_same_payload_again_with_another_last_add_confirmed(harness, size, way):
    """Protocol rule 33."""
    harness.start()
    harness.stage(harness.batch(1, 5, 9, size=size))
    for step in WAYS[way]:
        getattr(harness, step)()
    other = batch_with(1, 5, 9, lac=2, size=size)
    assert reply_to(harness, other).status is Status.BAD_REQUEST
    assert reply_to(harness, other, recovery=True).status is Status.OK
    harness.assert_holds(1, 5, 9, size=size)


@pytest.mark.parametrize("stored_whole", [False, True], ids=["a batch", "whole entries"])
@pytest.mark.parametrize("digest_type", list(DigestType))
def test_a_recovery_adds_the_same_payload_again_with_a_length_that_adds_up(harness, digest_type, stored_whole):
    """Protocol rule 33: what Apache's client wrote after its adds had failed has another one."""
    harness.start()
    digester = Digester(digest_type, b"")
    payloads = pa.array([payload(1, 5, 30, 0)], pa.binary())
    sealed = [seal(digester, 1, 5, payloads, length_before=before, last_add_confirmed=2) for before in (99, 150)]
    as_written, as_recovered = (encode(one, digest_type) for one in sealed)
    assert as_written is not None
    assert as_recovered is not None
    assert reply_to(harness, encode_apache(apache_entries(as_written)) if stored_whole else as_written).status is Status.OK
    assert reply_to(harness, as_recovered).status is Status.BAD_REQUEST
    assert reply_to(harness, as_recovered, recovery=True).status is Status.OK
    ((stored,), _) = harness.read(1, 5, 5)
    assert (stored.lengths.tolist(), stored.payloads) == ([180], payloads)


def test_new_ids_beside_the_same_entries_are_stored(harness, size):
    harness.start()
    harness.stage(batch_with(1, 0, 4, lac=-1, size=size))
    assert reply_to(harness, batch_with(1, 0, 9, lac=-1, size=size)).status is Status.OK
    harness.restart()
    harness.assert_holds(1, 0, 9, size=size)


def test_a_slot_that_changed_compares_only_the_ids_that_both_hold(harness, size):
    harness.start()
    mine, other = IdPattern(3, 2, 0), IdPattern(3, 2, 1)
    assert reply_to(harness, harness.batch(1, 0, 8, size=size, pattern=mine)).status is Status.OK
    assert reply_to(harness, harness.batch(1, 0, 8, size=size, pattern=other)).status is Status.OK
    assert reply_to(harness, harness.batch(1, 0, 8, size=size, pattern=other, tag=1)).status is Status.BAD_REQUEST
    harness.assert_holds(1, 0, 8, size=size)


@pytest.mark.parametrize("cut", [4, 9], ids=["in another cut", "as it was"])
def test_a_damaged_copy_is_repaired_by_a_recovery(harness, monkeypatch, cut):
    harness.start()
    harness.add(1, 0, 9)
    harness.restart()
    damage(harness, monkeypatch)
    assert reply_to(harness, batch_with(1, 0, cut, lac=-1), recovery=True).status is Status.OK
    monkeypatch.undo()
    assert next(iter(harness.read(1, 0, 9)[0])).entry_ids.tolist() == list(range(cut + 1))


def test_a_damaged_copy_is_repaired_by_the_very_batch_and_by_no_other_one_of_a_writer(harness, monkeypatch):
    harness.start()
    harness.add(1, 0, 9)
    harness.restart()
    [before] = harness.bookie.storage.batches_from((-1, -1, -1), 9)
    damage(harness, monkeypatch)
    assert reply_to(harness, batch_with(1, 0, 4, lac=-1)).status is Status.DAMAGED
    assert reply_to(harness, harness.batch(1, 0, 9)).status is Status.OK
    monkeypatch.undo()
    harness.restart()
    assert len(harness.bookie.storage.batches_from((-1, -1, -1), 9)) == 2
    assert before in harness.bookie.storage.batches_from((-1, -1, -1), 9)


def damage(harness, monkeypatch):
    """Let no record of an entry log be read."""

    def unreadable(location):
        raise CorruptionError("an entry log", f"the record at byte {location.offset}")

    monkeypatch.setattr(harness.bookie.storage.log_files, "read", unreadable)


def test_a_stored_entry_with_a_wrong_digest_is_repaired_by_a_recovery(harness, size):
    harness.start()
    wrong = batch_with(1, 0, 4, lac=-1, size=size, tag=1, digester=Digester(DigestType.CRC32C, b""))
    spoilt = bytearray(wrong.body)
    spoilt[wrong.body.rindex(payload(1, 4, size, 1))] ^= 1  # in a payload: the checksum of the body is right, the digest is not
    spoilt = replace(wrong, body=bytes(spoilt), body_crc32c=crc32c(bytes(spoilt)))
    assert reply_to(harness, spoilt).status is Status.OK
    right = harness.batch(1, 4, 4, size=size, tag=1)
    assert reply_to(harness, right).status is Status.BAD_REQUEST
    assert reply_to(harness, right, recovery=True).status is Status.OK
    harness.assert_holds(1, 0, 4, size=size, tag=1)


def test_after_a_deletion_a_recovery_may_bring_other_entries(harness):
    harness.start()
    harness.add(1, 0, 4)
    harness.delete(1)
    assert harness.add(1, 0, 4, tag=1, recovery=True).status is Status.OK
    harness.assert_holds(1, 0, 4, tag=1)


def test_the_log_names_a_ledger_once_whose_second_add_was_refused(harness, caplog):
    harness.start()
    harness.add(1, 0, 4)
    with caplog.at_level(logging.WARNING, "bk_spark"):
        for _ in range(3):
            harness.add(1, 0, 4, tag=1)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == (
        "bookie bookie-1 refuses an add: another entry is stored under an id from 0 to 4 of ledger 1, and what is stored stays"
    )


def test_the_adds_of_a_writer_in_order_look_nothing_up(harness, monkeypatch):
    harness.start()
    harness.add(1, 0, 4)
    harness.restart()
    harness.add(1, 5, 9)
    monkeypatch.setattr(harness.bookie.storage, "batches", lambda *_: pytest.fail("a look-up"))
    for first in range(10, 60, 5):
        assert harness.add(1, first, first + 4).status is Status.OK


def test_a_copy_that_cannot_be_opened_for_lack_of_descriptors_does_not_count_as_damaged(harness):
    """Storage rule 17. A damaged copy would be replaced by what the recovery brings."""
    harness.start()
    harness.add(1, 0, 4)
    harness.bookie.storage.checkpoint()
    EntryLogFiles.close(harness.bookie.storage.log_files)  # what is read next has to be opened
    harness.disk.fail("open", "entry_log")
    reply = reply_to(harness, batch_with(1, 0, 4, lac=-1, tag=1), recovery=True)
    assert (reply.status, "Too many open files" in reply.detail) == (Status.IO_ERROR, True)
    harness.disk.failing.clear()
    harness.assert_holds(1, 0, 4)


def test_after_so_many_ledgers_the_log_names_them_again(harness, caplog, monkeypatch):
    """What is remembered of them stays bounded."""
    monkeypatch.setattr(bookie, "MAX_TOLD", 2)
    harness.start()
    for ledger_id in (1, 2, 3):
        harness.add(ledger_id, 0, 4)
    with caplog.at_level(logging.WARNING, "bk_spark"):
        for ledger_id in (1, 2, 3, 1):
            harness.add(ledger_id, 0, 4, tag=1)
    assert len(caplog.records) == 4


@pytest.mark.parametrize("other", ["last_add_confirmed", "lengths"])
def test_a_writer_that_changes_the_numbers_of_an_entry_is_refused_though_payload_and_digest_are_the_same(harness, other):
    """Not every digest covers them."""
    harness.start()
    harness.stage(harness.batch(1, 5, 9))
    part = decode(harness.batch(1, 5, 9)).slice(0, 4)
    for entries, status in ((part, Status.OK), (replace(part, **{other: getattr(part, other) - 1}), Status.BAD_REQUEST)):
        encoded = encode(entries, DigestType.CRC32C)
        assert encoded is not None
        assert reply_to(harness, encoded).status is status


def test_a_recovery_changes_no_payload_under_an_hmac_whose_password_the_bookie_does_not_know(harness):
    harness.start()
    keyed = Digester(DigestType.HMAC, b"secret")
    assert reply_to(harness, batch_with(1, 0, 4, lac=-1, digester=keyed)).status is Status.OK
    for recovery in (False, True):
        other = batch_with(1, 0, 4, lac=-1, tag=1, digester=keyed)
        assert reply_to(harness, other, recovery=recovery).status is Status.BAD_REQUEST


def test_without_digests_a_writers_batch_with_another_last_add_confirmed_is_refused_too(harness):
    harness.start()
    dummy = Digester(DigestType.DUMMY, b"")
    assert reply_to(harness, batch_with(1, 5, 9, lac=4, digester=dummy)).status is Status.OK
    assert reply_to(harness, batch_with(1, 5, 9, lac=4, digester=dummy)).status is Status.OK
    assert reply_to(harness, batch_with(1, 5, 9, lac=3, digester=dummy)).status is Status.BAD_REQUEST
    assert reply_to(harness, batch_with(1, 5, 9, lac=3, digester=dummy), recovery=True).status is Status.OK
