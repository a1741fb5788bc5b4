"""An idle writer tells how far its ledger is confirmed. Ref: situation 23."""

from __future__ import annotations

from bk_spark.client.protocol.state_machine import SendStoreLastAddConfirmed
from bk_spark.wire.messages import Status
from tests.unit.client.protocol.writer_model import Writer, limits

IDLE_MS = 100


def _writer() -> Writer:
    return Writer(limits=limits(explicit_lac_ms=IDLE_MS))


def _told(writer: Writer) -> list[tuple[str, int]]:
    return [(c.bookie_id, c.last_add_confirmed) for c in writer.log if isinstance(c, SendStoreLastAddConfirmed)]


def test_an_idle_writer_tells_every_bookie_once_how_far_it_is_confirmed() -> None:
    writer = _writer()
    sent = writer.append(b"a")
    writer.ack(*sent.values())
    writer.tick(IDLE_MS - 1)
    assert _told(writer) == []
    assert writer.machine.deadline_ms() == IDLE_MS
    writer.tick(1)
    assert _told(writer) == [("b0", 0), ("b1", 0), ("b2", 0)]
    writer.tick(10 * IDLE_MS)
    assert len(_told(writer)) == 3


def test_a_writer_whose_next_entry_told_it_already_tells_nothing() -> None:
    writer = _writer()
    writer.ack(*writer.append(b"a").values())
    writer.append(b"b")
    writer.tick(IDLE_MS)
    assert _told(writer) == []


def test_what_is_confirmed_after_the_pause_is_told_together_after_the_next_one() -> None:
    """Slow bookies with many entries to confirm are not told of each."""
    writer = _writer()
    sent = [writer.append(b"x") for _ in range(10)]
    writer.tick(IDLE_MS)
    for one in sent:
        writer.ack(*one.values())
        writer.tick(1)
    assert _told(writer) == [("b0", 0), ("b1", 0), ("b2", 0)]
    writer.tick(IDLE_MS)
    assert _told(writer)[3:] == [("b0", 9), ("b1", 9), ("b2", 9)]


def test_a_bookie_that_failed_is_told_nothing() -> None:
    writer = _writer()
    sent = writer.append(b"a")
    writer.ack(sent["b0"], sent["b1"])
    writer.fail(sent["b2"])
    writer.tick(IDLE_MS)
    assert _told(writer) == [("b0", 0), ("b1", 0)]


def test_a_writer_that_failed_tells_nothing() -> None:
    writer = _writer()
    writer.ack(*writer.append(b"a").values())
    writer.ack(writer.append(b"b")["b0"], status=Status.FENCED)
    writer.tick(10 * IDLE_MS)
    assert _told(writer) == []
