"""What a check learns of replicas, against simulated ones: protocol rules 54 and 55, situations 81 and 82."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pytest

from bk_spark.client.protocol import check_replicas
from bk_spark.client.protocol.check_replicas import CheckReplicas, CheckTask, ReplicasChecked, checkable
from bk_spark.client.protocol.limits import CheckLimits
from bk_spark.client.protocol.state_machine import (
    CancelRead,
    Command,
    Event,
    Finish,
    ReadArrived,
    ReadEnded,
    ReadSent,
    ReadWaits,
    SendRead,
    Start,
    Tick,
)
from bk_spark.entries.rate import ByteRate
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata
from bk_spark.wire.messages import Status
from tests.unit.client.protocol.reader_model import (
    SILENT,
    Answer,
    Late,
    Replica,
    damaged_from,
    encoded_of,
    entries,
    failing,
    healthy,
    ledger,
    small_answers,
)

LIMITS = CheckLimits(timeout_ms=1_000, request_bytes=1 << 20)
UNBOUNDED = 1 << 40
LAST = 40


def lacking(ids: Collection[int], status: Status = Status.NO_SUCH_ENTRY) -> Replica:
    """Has all but these."""

    def answer(request: SendRead) -> Answer:
        asked = [one for one in range(request.first, request.last + 1) if request.pattern.holds(one)]
        end = next((one for one in asked if one in ids), None)
        if end is None:
            return healthy(request)
        batch = entries(request.first, request.last)
        return encoded_of(batch.select(batch.entry_ids < end), request.pattern), status

    return answer


@dataclass
class Check:
    """Runs a check of one ledger against replicas by bookie id."""

    metadata: LedgerMetadata
    replicas: Mapping[str, Replica | Late]
    bytes_per_s: int = UNBOUNDED
    now_ms: int = 0
    log: list[Command] = field(default_factory=list)
    _queue: list[Event] = field(default_factory=lambda: [Start()])

    def run(
        self, *, is_full: bool = True, bookies: Collection[str] | None = None, lost: Collection[str] = ()
    ) -> ReplicasChecked:
        asked = None if bookies is None else frozenset(bookies)
        task = CheckTask(self.metadata, checkable(self.metadata, LAST), is_full, asked, frozenset(lost))
        machine = CheckReplicas(task, LIMITS, ByteRate(self.bytes_per_s))
        for _ in range(20_000):
            machine.handle(self._next(machine), self.now_ms)
            for command in machine.take_commands():
                self.log.append(command)
                if isinstance(command, Finish):
                    assert isinstance(command.result, ReplicasChecked)
                    assert machine.deadline_ms() is None
                    return command.result
                if isinstance(command, SendRead):
                    self._answer(command)
        raise AssertionError("the check does not end")

    @property
    def asked(self) -> list[tuple[str, int, int]]:
        return [(c.bookie_id, c.first, c.last) for c in self.log if isinstance(c, SendRead)]

    def _next(self, machine: CheckReplicas) -> Event:
        if self._queue:
            return self._queue.pop(0)
        deadline = machine.deadline_ms()
        assert deadline is not None, "nothing is under way and no deadline is set"
        self.now_ms = max(self.now_ms, deadline)
        return Tick()

    def _answer(self, request: SendRead) -> None:
        replica = self.replicas[request.bookie_id]
        if isinstance(replica, Late):
            return
        batches, status = replica(request)
        self._queue += [ReadArrived(request.request_id, batch) for batch in batches]
        self._queue.append(ReadEnded(request.request_id, status))


def check_of(*replicas: Replica | Late, e: int = 3, w: int = 3, a: int = 2, last: int = LAST) -> Check:
    by_id = {f"b{slot}": replica for slot, replica in enumerate(replicas)}
    return Check(ledger(e, w, a).closed_at(last, 0), by_id)


def counts(found: ReplicasChecked) -> tuple[int, int, int]:
    return found.without_replica, found.below_ack_quorum, found.below_write_quorum


# --- what is read


@pytest.mark.parametrize(("e", "w"), [(1, 1), (3, 3), (3, 2), (5, 3)])
@pytest.mark.parametrize("replica", [healthy, small_answers])
def test_every_entry_is_read_from_every_bookie_that_should_hold_it(e: int, w: int, replica: Replica) -> None:
    found = check_of(*[replica] * e, e=e, w=w, a=1).run()
    assert found.entries == (LAST + 1) * w
    assert (found.lacking, found.unknown, counts(found)) == ({}, {}, (0, 0, 0))


def test_of_several_fragments_each_is_read_from_its_own_ensemble() -> None:
    metadata = ledger().with_ensemble(10, ("b3", "b1", "b2")).closed_at(20, 0)
    check = Check(metadata, dict.fromkeys(["b0", "b1", "b2", "b3"], healthy))
    assert check.run().entries == 3 * 21
    assert sorted(check.asked) == [("b0", 0, 9), ("b1", 0, 9), ("b1", 10, 20), ("b2", 0, 9), ("b2", 10, 20), ("b3", 10, 20)]


@pytest.mark.parametrize(("e", "w"), [(3, 3), (4, 2)])
def test_a_sample_reads_the_first_and_the_last_entry_of_each_bookie(e: int, w: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many windows the fragment has."""
    monkeypatch.setattr(check_replicas, "WINDOW_ENTRIES", 7)
    check = check_of(*[healthy] * e, e=e, w=w, a=1)
    found = check.run(is_full=False)
    expected = []
    for slot in range(e):
        held = [one for one in range(LAST + 1) if (slot - one) % e < w]
        expected += [(f"b{slot}", end, end) for end in (held[0], held[-1])]
    assert sorted(check.asked) == sorted(expected)
    assert found.entries == 2 * e


def test_a_ledger_without_entries_is_checked_by_asking_nobody() -> None:
    """Protocol rule 54: such a ledger is marked for what its metadata names, not for what bookies hold."""
    check = check_of(SILENT, SILENT, SILENT, last=-1)
    assert check.run().entries == 0
    assert check.asked == []


def test_a_last_fragment_without_entries_is_left_out() -> None:
    metadata = ledger().with_ensemble(10, ("b3", "b1", "b2")).closed_at(9, 0)
    check = Check(metadata, dict.fromkeys(["b0", "b1", "b2"], healthy))
    assert check.run().entries == 3 * 10


def test_bookies_that_were_not_asked_for_are_not_asked() -> None:
    check = check_of(healthy, healthy, lacking([3]))
    assert check.run(bookies=["b2"]).lacking == {"b2": 1}
    assert {bookie for bookie, _, _ in check.asked} == {"b2"}


# --- what is lacking


@pytest.mark.parametrize("status", [Status.NO_SUCH_ENTRY, Status.DAMAGED])
@pytest.mark.parametrize("ids", [[0], [LAST], [5, 6, 30], range(LAST + 1)])
def test_an_entry_that_a_bookie_denies_or_calls_damaged_is_lacking_there(status: Status, ids: Collection[int]) -> None:
    """Situation 81."""
    found = check_of(healthy, lacking(ids, status), healthy).run()
    assert found.lacking == {"b1": len(ids)}
    assert found.unknown == {}
    assert found.entries == 3 * (LAST + 1) - len(ids)


def test_an_entry_whose_digest_is_wrong_is_lacking() -> None:
    check = check_of(damaged_from(38), healthy, healthy)
    assert check.run().lacking == {"b0": 3}
    assert any(isinstance(command, CancelRead) for command in check.log), "the rest of that answer is not waited for"


def test_a_bookie_that_knows_nothing_of_the_ledger_lacks_all_of_it_at_one_question() -> None:
    check = check_of(healthy, healthy, failing(Status.NO_SUCH_LEDGER))
    assert check.run().lacking == {"b2": LAST + 1}
    assert [bookie for bookie, _, _ in check.asked].count("b2") == 1


def test_a_lost_bookie_lacks_everything_and_is_not_asked() -> None:
    check = check_of(healthy, SILENT, healthy)
    found = check.run(lost=["b1"])
    assert found.lacking == {"b1": LAST + 1}
    assert counts(found) == (0, 0, LAST + 1)
    assert "b1" not in {bookie for bookie, _, _ in check.asked}


def test_damage_without_end_is_left_after_so_many_entries_and_the_rest_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_replicas, "MAX_LACKING", 20)
    found = check_of(healthy, healthy, lacking(range(LAST + 1), Status.DAMAGED)).run()
    assert found.lacking == {"b2": 20}
    assert "the rest was not looked at" in found.unknown["b2"]


def test_windows_change_nothing_in_what_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fragment of many entries is judged in pieces."""
    monkeypatch.setattr(check_replicas, "WINDOW_ENTRIES", 7)
    found = check_of(lacking([6, 7, 8, 35]), lacking([7]), healthy).run()
    assert found.lacking == {"b0": 4, "b1": 1}
    assert counts(found) == (0, 1, 3)
    monkeypatch.setattr(check_replicas, "MAX_LACKING", 20)
    found = check_of(healthy, lacking(range(LAST + 1)), healthy).run()
    assert found.lacking == {"b1": 20}


# --- unknown is not lacking


@pytest.mark.parametrize(
    "status", [Status.UNKNOWN, Status.IO_ERROR, Status.WRONG_BOOKIE, Status.UNAUTHORIZED, Status.BAD_REQUEST, Status.OK]
)
def test_a_bookie_that_does_not_say_yes_or_no_is_unknown(status: Status) -> None:
    found = check_of(healthy, failing(status), healthy).run()
    assert found.lacking == {}
    assert list(found.unknown) == ["b1"]
    assert counts(found) == (0, 0, 0)


def test_a_silent_bookie_is_unknown_after_the_timeout_and_is_not_asked_again() -> None:
    metadata = ledger().with_ensemble(10, ("b3", "b1", "b2")).closed_at(20, 0)
    check = Check(metadata, {**dict.fromkeys(["b0", "b2", "b3"], healthy), "b1": SILENT})
    assert check.run().unknown == {"b1": "no answer for 1 s"}
    assert [bookie for bookie, _, _ in check.asked].count("b1") == 1
    assert check.now_ms == LIMITS.timeout_ms
    assert any(isinstance(command, CancelRead) for command in check.log)


def test_what_a_bookie_lacked_before_it_became_unknown_is_known() -> None:
    def falls_silent(request: SendRead) -> Answer:
        return lacking([3])(request) if request.first <= 3 else ([], Status.UNKNOWN)

    found = check_of(falls_silent, healthy, healthy).run()
    assert found.lacking == {"b0": 1}
    assert list(found.unknown) == ["b0"]


# --- entries with too few replicas


def test_entries_with_none_with_fewer_than_the_ack_quorum_and_than_the_write_quorum_are_counted() -> None:
    """Situation 82: of entries 1 to 4 none, of 5 to 7 one, of 8 and 9 two of three replicas are left."""
    replicas = [lacking([1, 2, 3, 4, 5, 6, 7, 8, 9]), lacking([1, 2, 3, 4, 5, 6, 7]), lacking([1, 2, 3, 4])]
    found = check_of(*replicas).run()
    assert counts(found) == (4, 3, 2)
    assert found.lacking == {"b0": 9, "b1": 7, "b2": 4}


def test_with_striping_only_the_write_set_of_an_entry_counts() -> None:
    found = check_of(*[lacking([6])] * 4, e=4, w=2, a=2).run()
    assert counts(found) == (1, 0, 0)
    assert found.lacking == {"b2": 1, "b3": 1}


def test_a_replica_of_which_nothing_is_known_is_not_counted_as_missing() -> None:
    found = check_of(lacking([7]), SILENT, lacking([7])).run()
    assert counts(found) == (0, 1, 0)


# --- what may be checked, how fast


def test_of_an_open_ledger_the_last_fragment_is_not_checked() -> None:
    """Bookies that lag behind its writer lack nothing."""
    metadata = ledger().with_ensemble(10, ("b3", "b1", "b2"))
    assert checkable(metadata, confirmed=15) == [(Fragment(0, ("b0", "b1", "b2")), 0, 9)]
    assert checkable(ledger(), confirmed=15) == []


def test_the_last_fragment_but_one_counts_as_open_while_less_than_its_end_is_known_to_be_confirmed() -> None:
    """Protocol rule 55."""
    metadata = ledger().with_ensemble(10, ("b3", "b1", "b2")).with_ensemble(20, ("b0", "b1", "b2"))
    assert [first for _, first, _ in checkable(metadata, confirmed=18)] == [0]
    assert [first for _, first, _ in checkable(metadata, confirmed=19)] == [0, 10]


def test_no_more_bytes_a_second_are_read_than_allowed() -> None:
    free = check_of(small_answers, small_answers, small_answers)
    free.run()
    assert free.now_ms == 0
    bound = check_of(small_answers, small_answers, small_answers)
    bound.bytes_per_s = 10_000
    found = bound.run()
    assert found.entries == 3 * (LAST + 1)
    assert bound.now_ms >= 1000 * found.nbytes / 10_000 * 0.8


def test_the_time_in_which_a_read_waits_to_be_sent_is_not_the_bookies_fault() -> None:
    metadata = ledger().closed_at(20, 0)
    task = CheckTask(metadata, checkable(metadata, LAST), True, None, frozenset())
    machine = CheckReplicas(task, LIMITS, ByteRate(UNBOUNDED))
    machine.handle(Start(), 0)
    sent = []
    for send in machine.take_commands():
        assert isinstance(send, SendRead)
        machine.handle(ReadWaits(send.request_id), 0)
        sent.append(send.request_id)
    assert machine.deadline_ms() is None
    for request_id in sent:
        machine.handle(ReadSent(request_id), 10 * LIMITS.timeout_ms)
    assert machine.deadline_ms() == 11 * LIMITS.timeout_ms
