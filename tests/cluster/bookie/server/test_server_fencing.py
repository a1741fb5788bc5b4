"""A server in this process over a disk that can be held up: what is answered before a sync, and what is not.

Ref: docs/rules.md, protocol rules 30, 34, 35 and 59.
"""

from __future__ import annotations

import threading

import pytest

from bk_spark.proto import bookie_pb2 as pb
from bk_spark.wire.messages import PROTOCOL_VERSION
from tests.cluster.bookie.served import DEADLINE_S, Served


@pytest.fixture
def served(harness):
    made = Served(harness)
    yield made
    made.close()


def test_a_fencing_read_is_answered_when_its_fence_is_durable_and_not_before(served):
    """Protocol rule 35: also if there is nothing to read."""
    assert served.add(1, 0, 4).result(DEADLINE_S) == pb.OK
    served.disk.hold_syncs()
    answers = [served.read(1, 0, 9), served.read(2, 0, 9), served.confirmed(3, fence=True)]
    assert served.disk.sync_begins.wait(DEADLINE_S)
    plain = served.confirmed(1).result(DEADLINE_S)
    assert (plain.status, plain.fenced) == (pb.OK, False)
    assert not any(one.done() for one in answers)
    served.disk.sync_may_end.set()
    ends = [one.result(DEADLINE_S) for one in answers]
    assert [end.status for end in ends] == [pb.NO_SUCH_ENTRY, pb.NO_SUCH_ENTRY, pb.OK]
    assert ends[2].fenced
    for ledger_id in (1, 2, 3):
        assert served.add(ledger_id, 5, 9).result(DEADLINE_S) == pb.FENCED
        assert served.add(ledger_id, 5, 9, recovery=True).result(DEADLINE_S) == pb.OK


def test_a_fencing_read_whose_sync_fails_is_answered_with_that_error(served):
    """Situation 75."""
    assert served.add(1, 0, 4).result(DEADLINE_S) == pb.OK
    served.disk.fail("sync", "journal")
    assert served.read(1, 0, 4).result(DEADLINE_S).status == pb.IO_ERROR
    reply = served.confirmed(1, fence=True).result(DEADLINE_S)
    assert (reply.status, reply.fenced) == (pb.IO_ERROR, False)
    assert served.read(1, 0, 4, fence=False).result(DEADLINE_S).status == pb.OK


def test_fencing_reads_do_not_wait_behind_other_reads(served):
    assert served.add(1, 0, 4).result(DEADLINE_S) == pb.OK
    release = threading.Event()
    for _ in range(served.harness.config.read_threads):
        served.server.requests.readers.submit(release.wait, DEADLINE_S)
    try:
        assert served.read(1, 0, 4).result(DEADLINE_S / 2).status == pb.OK
        assert served.confirmed(1, fence=True).result(DEADLINE_S / 2).fenced
    finally:
        release.set()


def test_an_add_with_deferred_sync_is_answered_while_the_sync_runs_and_a_force_is_not(served):
    assert served.add(1, 0, 4).result(DEADLINE_S) == pb.OK
    served.disk.hold_syncs()
    assert served.add(1, 5, 9, deferred_sync=True).result(DEADLINE_S) == pb.OK
    assert served.disk.sync_begins.wait(DEADLINE_S)
    waiting = [served.force(1), served.add(1, 10, 14), served.confirm(1, 14)]
    assert served.confirmed(1).result(DEADLINE_S).status == pb.OK
    assert not any(one.done() for one in waiting)
    served.disk.sync_may_end.set()
    force, add, confirm = (one.result(DEADLINE_S) for one in waiting)
    assert (force.status, add, confirm.status) == (pb.OK, pb.OK, pb.OK)
    assert served.confirmed(1).result(DEADLINE_S).last_add_confirmed == 14


def test_a_long_poll_wakes_when_the_last_add_confirmed_moves(served):
    """Situation 46."""
    poll = served.poll(1, -1)
    assert served.add(1, 0, 4).result(DEADLINE_S) == pb.OK
    assert served.add(1, 5, 9).result(DEADLINE_S) == pb.OK
    assert poll.result(DEADLINE_S).last_add_confirmed == 4
    poll = served.poll(1, 4)
    assert served.confirm(1, 9).result(DEADLINE_S).status == pb.OK
    assert poll.result(DEADLINE_S).last_add_confirmed == 9


def test_a_long_poll_wakes_when_the_ledger_is_fenced(served):
    """Protocol rule 59."""
    assert served.add(1, 0, 4).result(DEADLINE_S) == pb.OK
    poll = served.poll(1, 4)
    assert served.read(1, 5, 5).result(DEADLINE_S).status == pb.NO_SUCH_ENTRY
    reply = poll.result(DEADLINE_S)
    assert (reply.status, reply.last_add_confirmed, reply.fenced) == (pb.OK, -1, True)


def test_a_long_poll_ends_when_its_client_goes_away(served):
    poll = served.poll(1, -1)
    poll.cancel()
    served.wait_for_polls(0)


def test_a_long_poll_is_answered_when_the_bookie_stops(served):
    assert served.add(1, 0, 4).result(DEADLINE_S) == pb.OK
    poll = served.poll(1, 4)
    served.stop()
    reply = poll.result(DEADLINE_S)
    assert (reply.status, reply.last_add_confirmed, reply.fenced) == (pb.OK, -1, False)


def test_malformed_and_newer_requests_of_one_ledger_are_refused(served):
    assert served.confirm(1, -2).result(DEADLINE_S).status == pb.BAD_REQUEST
    assert served.force(-1).result(DEADLINE_S).status == pb.BAD_REQUEST
    assert served.stub.Force(pb.ForceRequest(version=PROTOCOL_VERSION + 1), timeout=DEADLINE_S).status == pb.UNSUPPORTED_VERSION
    newer = pb.StoreLastAddConfirmedRequest(version=PROTOCOL_VERSION + 1)
    assert served.stub.StoreLastAddConfirmed(newer, timeout=DEADLINE_S).status == pb.UNSUPPORTED_VERSION
