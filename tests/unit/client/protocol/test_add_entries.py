"""The writer's state machine, without threads, clocks or sockets."""

from __future__ import annotations

import pytest

from bk_spark.client.protocol.state_machine import (
    AddAnswered,
    CancelAdd,
    CloseRequested,
    Finish,
    MetadataGone,
    MetadataRead,
    MetadataUnknown,
    MetadataWritten,
    ReadMetadata,
    Tick,
    WriteMetadata,
)
from bk_spark.client.protocol.update_metadata import MAX_UNKNOWN_ANSWERS
from bk_spark.config import DigestType
from bk_spark.entries.batch import decode
from bk_spark.entries.digest import Digester
from bk_spark.errors import (
    AddQuorumTimeoutError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataConflictError,
    MetadataUnavailableError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
)
from bk_spark.metadata.ledger_metadata import LedgerState
from bk_spark.quorum import write_set
from bk_spark.wire.messages import Status
from tests.unit.client.protocol.writer_model import NOISE, QUORUM_TIMEOUT_MS, TIMEOUT_MS, Writer, calls, limits


def test_an_entry_is_confirmed_with_its_ack_quorum_and_not_before() -> None:
    writer = Writer()
    sent = writer.append(b"x", token="x")
    writer.ack(sent["b0"])
    assert writer.confirmed() == []
    writer.ack(sent["b2"])
    assert writer.confirmed() == ["x"]
    assert (writer.machine.last_add_confirmed, writer.machine.length) == (0, 1)


def test_an_ack_that_comes_twice_counts_once() -> None:
    writer = Writer()
    sent = writer.append(b"x", token="x")
    writer.ack(sent["b0"], sent["b0"])
    assert writer.confirmed() == []


def test_entries_are_confirmed_in_order_whatever_the_order_of_their_acks() -> None:
    """Ref: protocol rule 16."""
    writer = Writer()
    first = writer.append(b"a", token="a")
    second = writer.append(b"b", token="b")
    writer.ack(*second.values())
    assert writer.confirmed() == []
    writer.ack(first["b0"], first["b1"])
    assert writer.confirmed() == ["a", "b"]


def test_entries_carry_the_last_add_confirmed_of_when_they_were_sent() -> None:
    writer = Writer()
    first = writer.append(b"a", b"b")
    second = writer.append(b"c")
    assert second["b0"].batch.header.last_add_confirmed == -1
    writer.ack(first["b0"], first["b1"])
    third = writer.append(b"d")
    header = third["b0"].batch.header
    assert (header.first_entry_id, header.last_add_confirmed, header.length_before) == (3, 1, 3)


def test_without_striping_every_bookie_is_sent_one_and_the_same_batch() -> None:
    sent = Writer().append(b"a", b"b")
    assert len({id(add.batch) for add in sent.values()}) == 1
    assert decode(sent["b0"].batch).matching(Digester(DigestType.CRC32C, b"")).all()


def test_with_striping_every_bookie_is_sent_the_entries_whose_write_set_names_it() -> None:
    sent = Writer(e=5, w=3, a=2).append(*(b"%d" % i for i in range(12)))
    for slot in range(5):
        ids = decode(sent[f"b{slot}"].batch).entry_ids.tolist()
        assert ids == [i for i in range(12) if slot in write_set(i, 5, 3)]


def test_acks_from_outside_of_an_entrys_write_set_do_not_confirm_it() -> None:
    """E=4, Qw=2, Qa=2: entry 0 stands on b0 and b1; b2 and b3 hold its neighbours only."""
    writer = Writer(e=4, w=2, a=2)
    sent = writer.append(b"0", b"1", b"2", token="batch")
    writer.ack(sent["b1"], sent["b2"], sent["b3"])
    assert writer.confirmed() == []
    writer.ack(sent["b0"])
    assert writer.confirmed() == ["batch"]


def test_a_bookie_outside_of_the_write_set_is_not_waited_for() -> None:
    writer = Writer(e=4, w=2, a=2)
    sent = writer.append(b"0", token="0")
    assert set(sent) == {"b0", "b1"}
    writer.ack(*sent.values())
    assert writer.confirmed() == ["0"]


@pytest.mark.parametrize("status", [s for s in Status if s not in (Status.OK, Status.FENCED)])
def test_a_bookie_that_refuses_is_left_out_and_the_writer_goes_on(status: Status) -> None:
    writer = Writer()
    sent = writer.append(b"a", token="a")
    writer.ack(sent["b1"], status=status)
    writer.ack(sent["b0"], sent["b2"])
    assert writer.confirmed() == ["a"]
    assert set(writer.append(b"b")) == {"b0", "b2"}


def test_below_the_ack_quorum_the_writer_fails_and_says_which_bookies_failed_and_why() -> None:
    writer = Writer()
    sent = writer.append(b"a", token="a")
    writer.do(AddAnswered(sent["b1"].request_id, Status.UNKNOWN, "connection refused"))
    writer.do(AddAnswered(sent["b2"].request_id, Status.IO_ERROR, "disk full"))
    error = writer.rejected()["a"]
    assert isinstance(error, NotEnoughBookiesError)
    assert "b1: UNKNOWN connection refused, b2: IO_ERROR disk full" in str(error)
    writer.append(b"b", token="b")
    assert writer.rejected()["b"] is error
    assert writer.confirmed() == []


def test_what_a_failed_bookie_was_sent_is_cancelled() -> None:
    """Ref: the writer's window is a promise on memory; a queue to a silent bookie must not outlive it."""
    writer = Writer()
    sent = [writer.append(b"a")["b1"] for _ in range(3)]
    commands = writer.ack(sent[0], status=Status.UNKNOWN)
    assert [c.request_id for c in commands if isinstance(c, CancelAdd)] == [s.request_id for s in sent[1:]]


def test_a_silent_bookie_is_left_out_after_the_add_timeout() -> None:
    writer = Writer()
    sent = writer.append(b"a", token="a")
    writer.ack(sent["b0"], sent["b1"])
    assert writer.machine.deadline_ms() == TIMEOUT_MS
    writer.now_ms = TIMEOUT_MS - 1
    writer.do(Tick())
    assert writer.released() == []
    writer.now_ms = TIMEOUT_MS
    writer.do(Tick())
    assert writer.released() == ["a"]
    assert set(writer.append(b"b")) == {"b0", "b1"}


def test_a_batch_leaves_the_window_only_when_no_bookie_owes_an_answer_for_it() -> None:
    """Otherwise a slow bookie's queue would grow without a bound while the others confirm."""
    writer = Writer()
    sent = writer.append(b"a", token="a")
    writer.ack(sent["b0"], sent["b1"])
    assert (writer.confirmed(), writer.released()) == (["a"], [])
    writer.ack(sent["b2"])
    assert writer.released() == ["a"]


def test_an_entry_that_is_not_confirmed_in_time_fails_the_writer() -> None:
    """Ref: protocol rule 28."""
    writer = Writer(a=2)
    sent = writer.append(b"a", token="a")
    writer.ack(sent["b0"])
    writer.now_ms = QUORUM_TIMEOUT_MS
    writer.do(Tick())
    assert isinstance(writer.rejected()["a"], (AddQuorumTimeoutError, NotEnoughBookiesError))


def test_the_quorum_timeout_alone_fails_the_writer() -> None:
    """Ref: protocol rule 28, situation 14."""
    writer = Writer(e=3, w=3, a=3, limits=limits(add_timeout_ms=10 * QUORUM_TIMEOUT_MS))
    sent = writer.append(b"a", token="a")
    writer.ack(sent["b0"])
    writer.now_ms = QUORUM_TIMEOUT_MS
    writer.do(Tick())
    assert isinstance(writer.rejected()["a"], AddQuorumTimeoutError)
    writer.ack(sent["b1"], sent["b2"])
    assert writer.confirmed() == []


def test_an_answer_costs_the_same_however_many_batches_are_on_their_way() -> None:
    few, many = Writer(), Writer()
    adds = [writer.append(b"x")["b0"] for writer in (few, many)]
    for _ in range(1000):
        many.append(b"x")
    costs = [
        calls(lambda w=writer, a=add: w.machine.handle(AddAnswered(a.request_id, Status.OK), 0))
        for writer, add in zip((few, many), adds, strict=True)
    ]
    assert costs[1] < costs[0] + NOISE


def _closing(writer: Writer) -> WriteMetadata:
    return next(c for c in writer.do(CloseRequested()) if isinstance(c, WriteMetadata))


def test_close_rejects_what_is_unconfirmed_and_ends_at_the_last_confirmed_entry() -> None:
    """Ref: protocol rule 25, situation 15."""
    writer = Writer()
    first = writer.append(b"abc", token="a")
    writer.append(b"d", token="d")
    writer.ack(*first.values())
    write = _closing(writer)
    assert isinstance(writer.rejected()["d"], LedgerClosedError)
    assert (write.metadata.last_entry_id, write.metadata.length) == (0, 3)
    assert writer.do(MetadataWritten(1)) == [Finish()]
    writer.append(b"e", token="e")
    assert isinstance(writer.rejected()["e"], LedgerClosedError)


def test_a_ledger_without_entries_closes_at_minus_one() -> None:
    assert _closing(Writer()).metadata.last_entry_id == -1


def test_close_that_finds_the_ledger_closed_at_the_same_end_succeeds() -> None:
    """Ref: situation 16."""
    writer = Writer()
    write = _closing(writer)
    assert writer.do(MetadataRead(write.metadata, 5)) == [Finish()]


def test_close_that_finds_another_end_fails() -> None:
    """Ref: situation 16."""
    writer = Writer()
    write = _closing(writer)
    [finish] = writer.do(MetadataRead(write.metadata.closed_at(3, 10), 5))
    assert isinstance(finish, Finish)
    assert isinstance(finish.error, MetadataConflictError)


def test_close_that_finds_the_ledger_in_recovery_fails_as_fenced() -> None:
    """Ref: the protocol, "Closing a ledger as a writer"; protocol rule 26."""
    import dataclasses

    writer = Writer()
    before = writer.machine.metadata
    _closing(writer)
    [finish] = writer.do(MetadataRead(dataclasses.replace(before, state=LedgerState.IN_RECOVERY), 5))
    assert isinstance(finish, Finish)
    assert isinstance(finish.error, LedgerFencedError)
    assert not writer.machine.metadata.is_closed


def test_close_that_finds_the_ledger_open_and_changed_closes_what_it_found() -> None:
    """Another's edit of an older fragment survives. Ref: protocol rule 22."""
    writer = Writer()
    before = writer.machine.metadata
    _closing(writer)
    edited = before.with_custom("key", b"value")
    [again] = writer.do(MetadataRead(edited, 5))
    assert isinstance(again, WriteMetadata)
    assert again.expected_version == 5
    assert again.metadata.custom("key") == b"value"
    assert again.metadata.is_closed


def test_close_whose_reply_is_lost_reads_again_before_it_decides() -> None:
    writer = Writer()
    write = _closing(writer)
    assert writer.do(MetadataUnknown(MetadataUnavailableError("zk://x", "lost"))) == [ReadMetadata()]
    assert writer.do(MetadataRead(write.metadata, 1)) == [Finish()]


def test_close_gives_up_with_the_stores_error_after_a_bounded_number_of_tries() -> None:
    writer = Writer()
    lost = MetadataUnavailableError("zk://x", "lost")
    _closing(writer)
    for _ in range(MAX_UNKNOWN_ANSWERS + 1):
        commands = writer.do(MetadataUnknown(lost))
    assert commands == [Finish(error=lost)]


def test_close_of_a_deleted_ledger_says_so() -> None:
    writer = Writer()
    _closing(writer)
    [finish] = writer.do(MetadataGone())
    assert isinstance(finish, Finish)
    assert isinstance(finish.error, NoSuchLedgerError)


def test_a_writer_that_is_closed_twice_writes_its_end_once() -> None:
    writer = Writer()
    writer.ack(*writer.append(b"a").values())
    writer.do(CloseRequested())
    writer.do(CloseRequested())
    assert len([c for c in writer.log if isinstance(c, WriteMetadata)]) == 1
