"""Recovering a ledger, step by step, against toy bookies: mark, fence, write back, close. The reads: test_recover_reads.py.

"Rule" is a protocol rule of docs/rules.md, "situation" one of its situations, S1 to S8 are the schedules of the published model
in which an unsafe recovery loses entries.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from bk_spark.client.protocol.limits import RecoverLimits
from bk_spark.client.protocol.pending_adds import OWED_PATIENCE_MS
from bk_spark.client.protocol.state_machine import (
    AddAnswered,
    Finish,
    LastAddConfirmedAnswered,
    MarkUnderReplicated,
    MetadataGone,
    MetadataRead,
    MetadataUnknown,
    SendAdd,
    SendForce,
    SendRead,
    SendReadLastAddConfirmed,
    Start,
    WriteMetadata,
)
from bk_spark.entries.batch import NO_ENTRY, decode
from bk_spark.errors import (
    BookieUnavailableError,
    MetadataConflictError,
    MetadataUnavailableError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
)
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from bk_spark.quorum import write_set
from bk_spark.wire.messages import Status
from tests.unit.client.protocol.recovery_model import (
    DIGESTER,
    PATIENCE_MS,
    TIMEOUT_MS,
    UNKNOWN,
    Cluster,
    Recovery,
    entry,
    length_up_to,
    limits,
)


def fragments(metadata: LedgerMetadata) -> list[tuple[int, str]]:
    return [(one.first_entry_id, " ".join(one.ensemble)) for one in metadata.fragments]


# --- the mark


def test_nothing_is_fenced_before_the_ledger_is_in_recovery_in_the_metadata() -> None:
    """Rule 12."""
    recovery = Recovery(Cluster())
    commands = recovery.do(Start())
    assert [type(command) for command in commands] == [WriteMetadata]
    assert isinstance(commands[0], WriteMetadata)
    assert commands[0].metadata.state is LedgerState.IN_RECOVERY
    recovery.deliver(recovery.inbox.popleft())
    assert {type(command) for command in recovery.inbox} == {SendReadLastAddConfirmed}


def test_a_writers_ensemble_change_that_was_faster_than_the_mark_is_what_is_fenced() -> None:
    """Rule 12."""
    cluster = Cluster()
    cluster.hold("b0 b1 b3", 0)
    recovery = Recovery(cluster)
    cluster.store.set(cluster.store.metadata.with_ensemble(0, ("b0", "b1", "b3")))
    assert recovery.ends_at() == (0, length_up_to(0))
    assert {c.bookie_id for c in recovery.log if isinstance(c, SendReadLastAddConfirmed)} == {"b0", "b1", "b3"}


def test_a_ledger_that_is_in_recovery_is_joined_without_a_write() -> None:
    """Rule 13: a second mark would make recoverers starve each other."""
    cluster = Cluster()
    cluster.store.set(replace(cluster.store.metadata, state=LedgerState.IN_RECOVERY))
    recovery = Recovery(cluster)
    assert recovery.ends_at() == (NO_ENTRY, 0)
    assert len(recovery.sent(WriteMetadata)) == 1


def test_a_closed_ledger_is_the_result_as_it_is() -> None:
    cluster = Cluster()
    cluster.store.set(cluster.store.metadata.closed_at(4, 9))
    recovery = Recovery(cluster)
    assert recovery.ends_at() == (4, 9)
    assert len(recovery.log) == 1


def test_a_ledger_that_was_deleted_cannot_be_recovered() -> None:
    recovery = Recovery(Cluster())
    recovery.do(Start())
    recovery.do(MetadataGone())
    assert recovery.finish is not None
    assert isinstance(recovery.finish.error, NoSuchLedgerError)


# --- fencing


@pytest.mark.parametrize("shape", [(3, 3, 2), (3, 3, 3), (4, 3, 2), (5, 3, 2), (2, 2, 1), (3, 2, 2), (6, 3, 2), (5, 5, 3)])
def test_fencing_is_over_once_no_write_set_has_an_ack_quorum_of_unknown_bookies(shape: tuple[int, int, int]) -> None:
    """Rule 3, situation 42: every set of slots that answer, in every kind of known answer; the rest stays unknown."""
    e, w, a = shape
    for known in itertools.product([True, False], repeat=e):
        cluster = Cluster(e, w, a)
        recovery = Recovery(cluster)
        for slot in range(e):
            cluster.bookies[f"b{slot}"].is_known = slot % 2 == 0
            cluster.bookies[f"b{slot}"].refuses_fences = None if known[slot] else UNKNOWN[slot % len(UNKNOWN)]
        recovery.run(until=lambda command: isinstance(command, SendRead))
        unknown_acks = max(sum(not known[slot] for slot in write_set(i, e, w)) for i in range(e))
        assert (recovery.finish is None) == (unknown_acks < a), known


def test_a_bookie_that_never_saw_the_ledger_is_fenced_as_well() -> None:
    """Rule 2, and rule 35 of the bookie: the negative answer counts because it is given after the fence."""
    cluster = Cluster()
    assert Recovery(cluster).ends_at() == (NO_ENTRY, 0)
    assert [cluster.takes_add(name, 0) for name in ("b0", "b1", "b2")] == [False] * 3


def test_an_answer_without_a_fence_is_unknown() -> None:
    """Rule 3."""
    recovery = Recovery(Cluster())
    recovery.run(until=lambda command: isinstance(command, SendReadLastAddConfirmed))
    for command in recovery.sent(SendReadLastAddConfirmed):
        assert isinstance(command, SendReadLastAddConfirmed)
        recovery.do(LastAddConfirmedAnswered(command.request_id, Status.OK, NO_ENTRY, is_fenced=False))
    assert recovery.reads == []


def test_a_bookie_that_is_back_within_the_patience_is_asked_again() -> None:
    cluster = Cluster()
    cluster.hold("b0 b1", 0)
    recovery = Recovery(cluster)
    recovery.silent = {"b0", "b1"}
    recovery.run(until=lambda command: recovery.now_ms > 3 * TIMEOUT_MS)
    recovery.silent.clear()
    assert recovery.ends_at() == (0, length_up_to(0))


def test_without_coverage_recovery_gives_up_after_its_patience_and_decides_nothing() -> None:
    """Situation 35."""
    recovery = Recovery(Cluster())
    recovery.silent = {"b0", "b1"}
    assert isinstance(recovery.fails(), BookieUnavailableError)
    assert recovery.now_ms == PATIENCE_MS
    assert recovery.reads == []
    assert len(recovery.log) < 30


@pytest.mark.parametrize("refused", ["fences", "reads", "adds"])
def test_a_bookie_with_a_foreign_key_is_unknown_to_a_recovery(refused: str) -> None:
    """Protocol rule 24."""
    cluster = Cluster()
    cluster.hold("b0 b1 b2", 0)
    cluster.hold("b0", 1)
    setattr(cluster.bookies["b1"], f"refuses_{refused}", Status.UNAUTHORIZED)
    assert Recovery(cluster).ends_at() == (1, length_up_to(1))
    cluster = Cluster()
    cluster.bookies["b1"].refuses_fences = cluster.bookies["b2"].refuses_fences = Status.UNAUTHORIZED
    assert isinstance(Recovery(cluster).fails(), BookieUnavailableError)


# --- write-backs


def test_write_backs_pass_the_fence_and_carry_the_frozen_lac() -> None:
    """S6: what is written back is not confirmed before the close, another recoverer may still end the ledger below it."""
    cluster = Cluster()
    cluster.hold("b0 b1 b2", *range(8), lac=2)
    recovery = Recovery(cluster, limits(window_entries=2))
    assert recovery.ends_at() == (7, length_up_to(7))
    assert {add.recovery for add in recovery.adds} == {True}
    assert {add.batch.header.last_add_confirmed for add in recovery.adds} == {2}
    assert {bookie.lac for bookie in cluster.bookies.values() if bookie.is_known} == {2}


def test_what_is_written_back_is_what_was_read() -> None:
    cluster = Cluster()
    cluster.hold("b0", *range(5))
    assert Recovery(cluster).ends_at() == (4, length_up_to(4))
    for entry_id in range(5):
        copies = [cluster.bookies[name].entries[entry_id] for name in ("b0", "b1", "b2")]
        assert {copy.payloads[0].as_py() for copy in copies} == {entry(entry_id, -1).payloads[0].as_py()}
        assert all(copy.matching(DIGESTER).all() and copy.lengths[0] == length_up_to(entry_id) for copy in copies)


def _patient() -> RecoverLimits:
    """No bookie is given up while the recovery waits for the last answers."""
    return replace(limits(), adds=replace(limits().adds, add_timeout_ms=10 * TIMEOUT_MS, add_quorum_timeout_ms=30 * TIMEOUT_MS))


def test_the_ledger_is_not_closed_before_every_write_back_has_its_ack_quorum() -> None:
    """Rule 11."""
    cluster = Cluster()
    cluster.hold("b0", 0)
    recovery = Recovery(cluster, _patient())
    recovery.run(until=lambda command: isinstance(command, SendAdd))
    adds = {add.bookie_id: add for add in recovery.adds}
    recovery.inbox = type(recovery.inbox)(c for c in recovery.inbox if not isinstance(c, SendAdd))
    recovery.run(until=lambda command: not isinstance(command, SendRead))
    while recovery.inbox:
        recovery.deliver(recovery.inbox.popleft())
    recovery.do(AddAnswered(adds["b0"].request_id, Status.OK))
    assert len(recovery.sent(WriteMetadata)) == 1
    recovery.do(AddAnswered(adds["b2"].request_id, Status.OK))
    recovery.pass_time()  # b1 owes its answer
    assert recovery.now_ms == OWED_PATIENCE_MS
    assert len(recovery.sent(WriteMetadata)) == 2


def test_a_bookie_lost_on_the_way_is_replaced_and_the_metadata_changes_once_at_the_close() -> None:
    """Rule 9, S7, situation 30."""
    cluster = Cluster()
    cluster.hold("b0 b1 b2", *range(6), lac=1)
    cluster.spares, cluster.bookies["b1"].refuses_adds = ["b3"], Status.IO_ERROR
    recovery = Recovery(cluster)
    assert recovery.ends_at() == (5, length_up_to(5))
    assert [fragments(one) for one in cluster.store.history] == [[(0, "b0 b1 b2")], [(0, "b0 b1 b2"), (2, "b0 b3 b2")]]


def test_a_recoverer_that_dies_after_its_ensemble_change_leaves_the_next_one_the_old_ensemble() -> None:
    """Rule 9, S7: entry 0 was confirmed on b0 and b1; the first recoverer's new bookies are empty."""
    cluster = Cluster()
    cluster.hold("b0 b1", 0)
    cluster.spares = ["b3", "b4"]
    cluster.bookies["b0"].refuses_adds = cluster.bookies["b1"].refuses_adds = Status.IO_ERROR
    Recovery(cluster).run(until=lambda c: isinstance(c, SendAdd) and c.bookie_id == "b3")
    assert fragments(cluster.store.metadata) == [(0, "b0 b1 b2")]
    assert Recovery(cluster).ends_at() == (0, length_up_to(0))


def test_entries_that_can_be_read_and_not_written_fail_recovery() -> None:
    """Rule 11, situations 31 and 32: it stays IN_RECOVERY, and with a new bookie the next try ends right."""
    cluster = Cluster()
    cluster.hold("b0 b1 b2", 0, 1, 2)
    cluster.bookies["b0"].refuses_adds = cluster.bookies["b2"].refuses_adds = Status.IO_ERROR
    assert isinstance(Recovery(cluster).fails(), NotEnoughBookiesError)
    cluster.spares = ["b5"]
    assert Recovery(cluster).ends_at() == (2, length_up_to(2))
    assert {"b1", "b5"} <= set(cluster.store.metadata.last_fragment.ensemble)


def test_an_entry_whose_length_does_not_follow_from_those_before_it_is_written_back_with_one_that_does() -> None:
    """Apache's writer that was fenced takes back the length of an add that failed, not its id, and may send another one."""
    cluster = Cluster()
    cluster.hold("b0 b1 b2", 0, 1)
    cluster.bookies["b0"].put(entry(2, -1, length_before=77), recovery=False)
    assert Recovery(cluster).ends_at() == (2, length_up_to(2))
    assert [int(cluster.bookies[one].entries[2].lengths[0]) for one in ("b0", "b1", "b2")] == [length_up_to(2)] * 3


def test_no_more_is_read_while_bookies_owe_answers_for_a_full_window_of_write_backs() -> None:
    """And the patience does not run out meanwhile: it is not the readers' bookies that are slow."""
    cluster = Cluster()
    cluster.hold("b0 b1 b2", *range(100))
    recovery = Recovery(cluster, limits(window_entries=10, request_bytes=200, patience_ms=TIMEOUT_MS // 2))
    recovery.run(until=lambda command: isinstance(command, SendAdd))
    while recovery.inbox:
        command = recovery.inbox.popleft()
        if not isinstance(command, SendAdd):
            recovery.deliver(command)
    assert max(add.batch.header.last_entry_id for add in recovery.adds) < 60
    assert max(len(decode(add.batch)) for add in recovery.adds) < 10
    recovery.pass_time()
    recovery.pass_time()
    assert recovery.finish is None


# --- the close


def test_who_finds_the_ledger_closed_takes_that_end() -> None:
    """Rule 13, situation 25: another recoverer did not see the entry, which was never confirmed."""
    cluster = Cluster()
    cluster.hold("b0", 0)
    recovery = Recovery(cluster)
    recovery.run(until=lambda c: isinstance(c, WriteMetadata) and c.metadata.is_closed)
    cluster.store.set(cluster.store.metadata.closed_at(NO_ENTRY, 0))
    assert recovery.ends_at() == (NO_ENTRY, 0)


@pytest.mark.parametrize("change", ["ensemble", "fragment", "border", "reopened"])
def test_who_finds_a_foreign_tail_fails_and_changes_nothing(change: str) -> None:
    """Rule 13."""
    cluster = Cluster(3, 3, 2, (0, "b4 b5 b6"), (5, "b0 b1 b2"))
    cluster.hold("b4 b5 b6", 4)
    cluster.hold("b0 b1 b2", 5, 6)
    recovery = Recovery(cluster)
    recovery.run(until=lambda c: isinstance(c, WriteMetadata) and c.metadata.is_closed)
    found = cluster.store.metadata
    older, last = found.fragments
    foreign = {
        "ensemble": found.with_ensemble(5, ("b0", "b1", "b9")),
        "fragment": found.with_ensemble(6, ("b0", "b1", "b2")),
        "border": replace(found, fragments=(older, Fragment(3, older.ensemble), last)),
        "reopened": replace(found, state=LedgerState.OPEN),
    }
    cluster.store.set(foreign[change])
    finish = recovery.run()
    assert finish is not None
    assert isinstance(finish.error, MetadataConflictError)
    assert cluster.store.metadata == foreign[change]


def test_what_others_changed_in_older_fragments_meanwhile_survives_the_close() -> None:
    """Rule 22, with an ensemble change of recovery itself."""
    cluster = Cluster(3, 3, 2, (0, "b4 b5 b6"), (5, "b0 b1 b2"))
    cluster.hold("b4 b5 b6", 4)
    cluster.hold("b0 b1 b2", 5, 6)
    cluster.spares, cluster.bookies["b1"].refuses_adds = ["b3"], Status.IO_ERROR
    recovery = Recovery(cluster)
    recovery.run(until=lambda c: isinstance(c, WriteMetadata) and c.metadata.is_closed)
    last = cluster.store.metadata.last_fragment
    moved = Fragment(0, ("b4", "b5", "b9"))
    cluster.store.set(replace(cluster.store.metadata, fragments=(moved, last)))
    assert recovery.ends_at() == (6, length_up_to(6))
    assert fragments(cluster.store.metadata) == [(0, "b4 b5 b9"), (5, "b0 b3 b2")]


def test_an_answer_of_the_store_that_nobody_waits_for_is_ignored() -> None:
    recovery = Recovery(Cluster())
    recovery.run(until=lambda command: isinstance(command, SendRead))
    assert recovery.do(MetadataRead(recovery.cluster.store.metadata, 1)) == []


def test_a_lost_reply_to_the_closing_write_is_looked_up() -> None:
    """Neither taken as done nor as failed."""
    cluster = Cluster()
    recovery = Recovery(cluster)
    recovery.run(until=lambda c: isinstance(c, WriteMetadata) and c.metadata.is_closed)
    write = recovery.inbox.popleft()
    assert isinstance(write, WriteMetadata)
    cluster.store.set(write.metadata)
    recovery.do(MetadataUnknown(MetadataUnavailableError("zk://x/y", "lost")))
    assert recovery.ends_at() == (NO_ENTRY, 0)
    assert len(recovery.sent(WriteMetadata)) == 2


def test_parallel_recoverers_end_at_the_same_entry() -> None:
    """Rule 13, situation 25."""
    cluster = Cluster()
    cluster.hold("b0 b1", *range(4), lac=1)
    crowd = [Recovery(cluster) for _ in range(5)]
    for recovery in crowd:
        recovery.do(Start())
    for _ in range(200):
        for recovery in crowd:
            if recovery.inbox:
                recovery.deliver(recovery.inbox.popleft())
    assert {recovery.ends_at() for recovery in crowd} == {(3, length_up_to(3))}


def test_the_old_writer_is_fenced_and_nothing_that_it_confirmed_is_cut_off() -> None:
    """Situation 24: entries 0 to 6 are confirmed, the LAC that bookies know is 5 at most."""
    cluster = Cluster()
    for entry_id in range(7):
        cluster.hold("b0 b1" if entry_id % 2 else "b1 b2", entry_id, lac=entry_id - 1)
    last, length = Recovery(cluster).ends_at()
    assert (last, length) == (6, length_up_to(6))
    assert [cluster.takes_add(name, 7) for name in ("b0", "b1", "b2")] == [False] * 3


def test_without_any_spare_recovery_goes_on_while_every_write_set_keeps_its_ack_quorum() -> None:
    cluster = Cluster()
    cluster.hold("b0 b1 b2", 0, 1)
    cluster.bookies["b2"].refuses_adds = Status.IO_ERROR
    assert Recovery(cluster).ends_at() == (1, length_up_to(1))
    assert fragments(cluster.store.metadata) == [(0, "b0 b1 b2")]


# --- write-backs that are acked into memory (protocol rule 61)


def _with_a_new_bookie() -> Cluster:
    """2/2/2: entry 0 is confirmed, b0 has it, b1 takes no more adds; b3 takes its place."""
    cluster = Cluster(2, 2, 2)
    cluster.hold("b0 b1", 0, 1)
    cluster.spares, cluster.bookies["b1"].refuses_adds = ["b3"], Status.IO_ERROR
    return cluster


def test_a_bookie_that_joined_and_was_started_again_gets_everything_again_before_it_is_named() -> None:
    cluster = _with_a_new_bookie()
    recovery = Recovery(cluster)
    recovery.run(until=lambda command: isinstance(command, SendForce))
    cluster.bookies["b3"].restart()
    assert recovery.ends_at() == (1, length_up_to(1))
    assert fragments(cluster.store.metadata) == [(0, "b0 b3")]
    assert set(cluster.bookies["b3"].entries) == {0, 1}
    assert len(recovery.sent(SendForce)) == 2


def test_a_bookie_that_joined_is_forced_when_it_owes_no_answer_and_before_the_closing_write() -> None:
    cluster = _with_a_new_bookie()
    recovery = Recovery(cluster)
    recovery.ends_at()
    kinds = [type(one) for one in recovery.log if isinstance(one, SendAdd | SendForce | WriteMetadata)]
    assert kinds[-2:] == [SendForce, WriteMetadata]
    assert [one.bookie_id for one in recovery.log if isinstance(one, SendForce)] == ["b3"]


def test_without_an_ensemble_change_nobody_is_forced() -> None:
    """Whoever the metadata names since before the recovery is protected by its limbo."""
    cluster = Cluster()
    cluster.hold("b0 b1 b2", *range(6), lac=1)
    recovery = Recovery(cluster)
    recovery.ends_at()
    assert not recovery.sent(SendForce)


def test_a_joined_bookie_that_is_started_again_every_time_fails_the_recovery_within_bounds() -> None:
    cluster = _with_a_new_bookie()
    recovery = Recovery(cluster)
    while recovery.run(until=lambda command: isinstance(command, SendForce)) is None:
        cluster.bookies["b3"].restart()
        recovery.deliver(recovery.inbox.popleft())
    error = recovery.fails()
    assert isinstance(error, BookieUnavailableError)
    assert "b3: it was started again" in str(error)


def test_a_joined_bookie_that_goes_before_it_is_forced_is_replaced_from_the_start() -> None:
    cluster = _with_a_new_bookie()
    recovery = Recovery(cluster)
    recovery.run(until=lambda command: isinstance(command, SendForce))
    recovery.silent.add("b3")
    cluster.spares = ["b4"]
    assert recovery.ends_at() == (1, length_up_to(1))
    assert fragments(cluster.store.metadata) == [(0, "b0 b4")]
    assert set(cluster.bookies["b4"].entries) == {0, 1}


# --- gaps that recovery leaves (protocol rule 63)


def test_a_slot_that_nobody_took_is_marked_once_the_ledger_is_closed() -> None:
    cluster = Cluster()
    cluster.hold("b0 b1 b2", 0, 1, 2)
    cluster.bookies["b1"].refuses_adds = Status.IO_ERROR
    recovery = Recovery(cluster)
    recovery.run(until=lambda command: isinstance(command, MarkUnderReplicated))
    assert cluster.store.metadata.is_closed
    assert recovery.ends_at() == (2, length_up_to(2))
    assert cluster.marked == {"b1"}


def test_a_bookie_that_does_not_answer_the_last_adds_is_marked_and_one_that_answers_late_is_not() -> None:
    for is_late in (False, True):
        cluster = Cluster()
        cluster.hold("b0 b1 b2", 0, 1, 2)
        recovery = Recovery(cluster, _patient())
        recovery.run(until=lambda command: isinstance(command, SendAdd))
        recovery.silent.add("b1")
        if is_late:
            recovery.run(until=lambda command: isinstance(command, WriteMetadata))
            for add in recovery.adds:
                if add.bookie_id == "b1":
                    for event in recovery.answers(add):
                        recovery.do(event)
        assert recovery.ends_at() == (2, length_up_to(2))
        assert recovery.now_ms <= OWED_PATIENCE_MS
        assert cluster.marked == (set() if is_late else {"b1"})


def test_a_bookie_that_no_fragment_names_any_more_is_not_marked() -> None:
    cluster = Cluster()
    cluster.hold("b0 b1 b2", 0, 1, 2)
    cluster.spares, cluster.bookies["b1"].refuses_adds = ["b3"], Status.IO_ERROR
    Recovery(cluster).ends_at()
    assert fragments(cluster.store.metadata) == [(0, "b0 b3 b2")]
    assert cluster.marked == set()


def test_a_mark_that_cannot_be_made_does_not_fail_the_recovery() -> None:
    cluster = Cluster()
    cluster.hold("b0 b1 b2", 0, 1, 2)
    cluster.bookies["b1"].refuses_adds = Status.IO_ERROR
    cluster.mark_error = MetadataUnavailableError("zk://x/y", "no answer")
    recovery = Recovery(cluster)
    assert recovery.ends_at() == (2, length_up_to(2))
    assert 1 < len(recovery.sent(MarkUnderReplicated)) < 10


def test_nothing_is_asked_for_once_a_recovery_has_ended() -> None:
    """Its patience and the time of an add may end at once."""
    cluster = Cluster()
    cluster.hold("b0 b1 b2", 0)
    recovery = Recovery(cluster, limits(patience_ms=TIMEOUT_MS))
    answers = recovery.answers
    silent = {(SendAdd, "b2"), (SendRead, "b1"), (SendRead, "b2")}
    recovery.answers = lambda request: [] if (type(request), request.bookie_id) in silent else answers(request)  # type: ignore[method-assign]
    recovery.run()
    assert isinstance(recovery.log[-1], Finish)
    assert recovery.finish is not None
    assert isinstance(recovery.finish.error, BookieUnavailableError)
