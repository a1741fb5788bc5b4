"""Deferred sync and force, and force without it. Ref: protocol rule 30."""

from __future__ import annotations

import itertools

from bk_spark.client.protocol.force_adds import ForcedCopies
from bk_spark.client.protocol.state_machine import (
    ChooseReplacements,
    CloseRequested,
    Confirm,
    ForceAnswered,
    ForceRequested,
    SendAdd,
    SendForce,
)
from bk_spark.errors import NotForcedError
from bk_spark.wire.messages import Status
from tests.unit.client.protocol.writer_model import TIMEOUT_MS, Writer


def _force(writer: Writer, token: object = "force") -> list[SendForce]:
    return [c for c in writer.do(ForceRequested(token)) if isinstance(c, SendForce)]


def _answer(writer: Writer, *forces: SendForce, status: Status = Status.OK, boot: int = 0) -> None:
    for force in forces:
        writer.do(ForceAnswered(force.request_id, status, "", boot))


def _deferred(**changed: int) -> tuple[Writer, dict[str, SendAdd]]:
    writer = Writer(deferred_sync=True, **changed)
    return writer, writer.append(b"abc", token="a")


def test_with_deferred_sync_an_ack_answers_the_append_and_does_not_move_the_lac() -> None:
    writer, sent = _deferred()
    assert all(add.deferred_sync for add in sent.values())
    writer.ack(*sent.values())
    assert writer.confirmed() == ["a"]
    assert (writer.machine.last_add_confirmed, writer.machine.length) == (-1, 0)


def test_a_force_moves_the_lac_once_every_bookie_of_the_ensemble_answered() -> None:
    writer, sent = _deferred()
    writer.ack(sent["b0"], sent["b1"])
    forces = _force(writer)
    assert [force.bookie_id for force in forces] == ["b0", "b1", "b2"]
    _answer(writer, *forces[:2])
    assert writer.machine.last_add_confirmed == -1
    _answer(writer, forces[2])
    assert Confirm("force", 0) in writer.log
    assert (writer.machine.last_add_confirmed, writer.machine.length) == (0, 3)


def test_a_force_covers_what_was_acked_before_it_and_nothing_later() -> None:
    writer, sent = _deferred()
    writer.ack(sent["b0"], sent["b1"])
    forces = _force(writer)
    later = writer.append(b"later")
    writer.ack(*later.values())
    _answer(writer, *forces)
    assert writer.machine.last_add_confirmed == 0


def test_a_bookie_that_was_started_again_since_its_acks_fails_the_force() -> None:
    """What it acked and never synced is gone, and it does not know."""
    writer, sent = _deferred()
    writer.ack(*sent.values(), boot=1)
    forces = _force(writer)
    _answer(writer, *forces[:2], boot=1)
    _answer(writer, forces[2], boot=2)
    error = writer.rejected()["force"]
    assert isinstance(error, NotForcedError)
    assert f"is not forced from entry {error.entry_id} on (b2: it was started again" in str(error)
    assert not error.retryable
    assert writer.machine.last_add_confirmed == -1
    assert not _force(writer, "again")
    assert "again" in writer.rejected()


def test_a_bookie_that_fails_or_stays_silent_fails_the_force() -> None:
    for status in (Status.IO_ERROR, None):
        writer, sent = _deferred()
        writer.ack(*sent.values())
        forces = _force(writer)
        _answer(writer, *forces[:2])
        if status is None:
            writer.tick(TIMEOUT_MS)
        else:
            _answer(writer, forces[2], status=status)
        assert isinstance(writer.rejected()["force"], NotForcedError)


def test_with_deferred_sync_the_ensemble_never_changes() -> None:
    writer, sent = _deferred()
    writer.spares = ["s0"]
    writer.fail(sent["b0"])
    assert not [c for c in writer.log if isinstance(c, ChooseReplacements)]
    writer.ack(sent["b1"], sent["b2"])
    assert writer.confirmed() == ["a"]


def test_closed_without_a_force_such_a_ledger_ends_before_its_first_entry() -> None:
    writer, sent = _deferred()
    writer.ack(*sent.values())
    writer.do(CloseRequested())
    writer.answer_write()
    assert (writer.stored.last_entry_id, writer.stored.length) == (-1, 0)


def test_without_deferred_sync_a_force_waits_for_what_is_on_its_way() -> None:
    writer = Writer()
    sent = writer.append(b"a")
    assert not _force(writer)
    assert "force" not in writer.confirmed()
    writer.ack(sent["b0"], sent["b1"])
    assert writer.confirmed()[-1] == "force"
    _force(writer, "nothing to wait for")
    assert writer.confirmed()[-1] == "nothing to wait for"


def test_a_force_of_a_writer_that_fails_is_rejected() -> None:
    for deferred in (True, False):
        writer = Writer(deferred_sync=deferred)
        sent = writer.append(b"a")
        _force(writer)
        writer.ack(sent["b0"], status=Status.FENCED)
        assert "force" in writer.rejected()
        _force(writer, "after")
        assert "after" in writer.rejected()


def test_a_writer_wakes_up_for_a_force_that_is_not_answered() -> None:
    writer, sent = _deferred()
    writer.ack(*sent.values())
    _force(writer)
    assert writer.machine.deadline_ms() == TIMEOUT_MS


def test_a_copier_that_forgets_one_bookie_still_waits_for_the_others() -> None:
    copies = ForcedCopies(itertools.count(1), TIMEOUT_MS)
    for bookie_id in ("b1", "b2"):
        copies.acked(bookie_id, 1)
    forces = copies.force(["b1", "b2"], 0)
    copies.forget("b1")
    assert copies.is_waiting
    (second,) = (one for one in forces if isinstance(one, SendForce) and one.bookie_id == "b2")
    copies.answered(ForceAnswered(second.request_id, Status.OK, "", 1))
    assert not copies.is_waiting
