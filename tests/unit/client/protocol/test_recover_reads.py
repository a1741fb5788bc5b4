"""What a recovery reads, and what it makes of the answers: where it begins, what is there, where it ends.

"Rule", "situation" and S1 to S8 as in test_recover_ledger.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from bk_spark.client.protocol.recover_ledger import MAX_LOOKS
from bk_spark.client.protocol.state_machine import (
    CancelRead,
    Deliver,
    MetadataRead,
    MetadataUnknown,
    ReadArrived,
    ReadEnded,
    ReadMetadata,
    SendAdd,
    SendRead,
    Tick,
    WriteMetadata,
)
from bk_spark.config import DigestType
from bk_spark.entries.batch import NO_ENTRY, EncodedBatch, EntryBatch, decode, encode, seal
from bk_spark.entries.recut import coalesce
from bk_spark.errors import (
    BookieUnavailableError,
    CorruptionError,
    MetadataUnavailableError,
)
from bk_spark.metadata.ledger_metadata import Fragment, LedgerState
from bk_spark.quorum import write_set
from bk_spark.wire.messages import Status
from tests.unit.client.protocol.recovery_model import (
    DIGESTER,
    LEDGER,
    PATIENCE_MS,
    TIMEOUT_MS,
    UNKNOWN,
    Cluster,
    Recovery,
    entry,
    length_up_to,
    limits,
    payload,
)

# --- where to begin, and the length up to there


def test_an_empty_last_fragment_does_not_take_recovery_below_its_first_entry() -> None:
    """Rules 6 and 7, S2, situation 29: all LACs are -1, the last fragment starts at 20, entry 19 is in the one before."""
    cluster = Cluster(2, 2, 2, (0, "b0 b1"), (10, "b1 b2"), (20, "b3 b4"))
    cluster.hold("b1 b2", *range(10, 20))
    recovery = Recovery(cluster)
    assert recovery.ends_at() == (19, length_up_to(19))
    assert {(read.bookie_id, read.first) for read in recovery.reads} == {("b1", 19), ("b2", 19), ("b3", 20), ("b4", 20)}
    assert recovery.adds == []


@pytest.mark.parametrize("lac", range(4))
def test_the_length_is_that_of_the_entry_at_the_floor_and_what_follows(lac: int) -> None:
    """Rule 7."""
    cluster = Cluster()
    cluster.hold("b0 b1 b2", *range(5), lac=lac)
    assert Recovery(cluster).ends_at() == (4, length_up_to(4))


def test_the_floor_is_read_from_another_replica_if_one_is_damaged_and_one_silent() -> None:
    """Rules 7 and 15."""
    cluster = Cluster()
    cluster.hold("b0 b1 b2", 0, 1, lac=0)
    cluster.bookies["b0"].damaged.add(0)
    recovery = Recovery(cluster)
    recovery.silent = {"b1"}
    assert recovery.ends_at() == (1, length_up_to(1))


def test_a_lac_that_no_entry_bears_out_fails_recovery() -> None:
    """Rule 15: a LAC answer has no digest, so the entry at the floor is read before the LAC is believed."""
    cluster = Cluster()
    cluster.hold("b0 b1 b2", 0, 1)
    cluster.bookies["b1"].lac = 1000
    assert isinstance(Recovery(cluster).fails(), CorruptionError)


@pytest.mark.parametrize("old", ["denies", "is silent"])
def test_the_floor_is_read_where_the_metadata_says_by_now_that_it_is(old: str) -> None:
    """Rule 57: the bookies of an older fragment were replaced after this recovery had read the metadata, or before it began."""
    cluster = Cluster(2, 2, 2, (0, "b0 b1"), (10, "b2 b3"))
    cluster.hold("b4 b5", *range(10))
    stale = replace(cluster.store.metadata, state=LedgerState.IN_RECOVERY)
    cluster.store.set(replace(stale, fragments=(Fragment(0, ("b4", "b5")), stale.fragments[1])))
    recovery = Recovery(cluster, metadata=stale)
    recovery.silent = {"b0", "b1"} if old == "is silent" else set()
    assert recovery.ends_at() == (9, length_up_to(9))
    assert recovery.sent(ReadMetadata) == [ReadMetadata(is_synced=True)]


def test_what_happens_while_the_metadata_is_looked_at_for_the_floor_does_not_end_the_look() -> None:
    cluster = Cluster(2, 2, 2, (0, "b0 b1"), (10, "b2 b3"))
    cluster.hold("b4 b5", *range(10))
    stale = replace(cluster.store.metadata, state=LedgerState.IN_RECOVERY)
    cluster.store.set(replace(stale, fragments=(Fragment(0, ("b4", "b5")), stale.fragments[1])))
    recovery = Recovery(cluster, metadata=stale)
    recovery.run(until=lambda command: isinstance(command, ReadMetadata))
    recovery.do(Tick())
    assert recovery.ends_at() == (9, length_up_to(9))


def test_a_recovery_that_finds_the_ledger_closed_where_it_looks_for_the_floor_adopts_that_end() -> None:
    """Rule 13."""
    cluster = Cluster(2, 2, 2, (0, "b0 b1"), (10, "b2 b3"))
    stale = replace(cluster.store.metadata, state=LedgerState.IN_RECOVERY)
    cluster.store.set(replace(stale, fragments=(Fragment(0, ("b4", "b5")), stale.fragments[1])).closed_at(12, 99))
    assert Recovery(cluster, metadata=stale).ends_at() == (12, 99)


def test_a_floor_that_is_nowhere_is_looked_for_a_bounded_number_of_times() -> None:
    """Somebody moves the fragment each time."""
    cluster = Cluster(2, 2, 2, (0, "b0 b1"), (10, "b2 b3"))
    recovery = Recovery(cluster)
    for step in range(MAX_LOOKS):
        recovery.run(until=lambda command: isinstance(command, ReadMetadata))
        assert isinstance(recovery.inbox.popleft(), ReadMetadata)
        metadata = cluster.store.metadata
        moved = (Fragment(0, (f"b{4 + 2 * step}", f"b{5 + 2 * step}")), metadata.fragments[1])
        cluster.store.set(replace(metadata, fragments=moved))
        recovery.do(MetadataRead(cluster.store.metadata, cluster.store.version))
    assert isinstance(recovery.fails(), CorruptionError)
    assert len(recovery.sent(ReadMetadata)) == MAX_LOOKS


def test_a_floor_that_bookies_deny_is_no_corruption_while_the_metadata_cannot_be_read() -> None:
    cluster = Cluster(2, 2, 2, (0, "b0 b1"), (10, "b2 b3"))
    recovery = Recovery(cluster)
    recovery.run(until=lambda command: isinstance(command, ReadMetadata))
    recovery.inbox.clear()
    recovery.do(MetadataUnknown(MetadataUnavailableError("zk://somewhere", "no answer")))
    assert isinstance(recovery.fails(), MetadataUnavailableError)


def test_the_floor_is_not_given_up_while_one_of_its_bookies_is_unknown() -> None:
    """Rule 5: the two that deny it are enough for an absent entry, but this one was confirmed."""
    cluster = Cluster()
    cluster.bookies["b1"].lac, cluster.bookies["b1"].is_known = 0, True
    cluster.bookies["b2"].refuses_reads = Status.IO_ERROR
    recovery = Recovery(cluster)
    assert isinstance(recovery.fails(), BookieUnavailableError)
    assert recovery.now_ms == PATIENCE_MS


# --- reads


def test_every_read_fences_so_that_the_old_writer_cannot_reach_its_ack_quorum_after_the_close() -> None:
    """Rule 1, S1, situation 28: entry 0 is on b1, its copy to b2 is in flight, and so is the fence to b2."""
    cluster = Cluster()
    cluster.hold("b1", 0)
    recovery = Recovery(cluster)
    recovery.run(until=lambda command: isinstance(command, SendRead))
    cluster.bookies["b2"].fenced = False
    reads = {read.bookie_id: read for read in recovery.reads}
    for name in ("b2", "b0"):
        for event in recovery.answers(reads[name]):
            recovery.do(event)
    recovery.inbox = type(recovery.inbox)(c for c in recovery.inbox if not isinstance(c, SendRead))
    assert recovery.ends_at() == (NO_ENTRY, 0)
    assert not cluster.takes_add("b2", 0)
    assert all(read.fence for read in recovery.reads)


@pytest.mark.parametrize("name", ["b0", "b1", "b2"])
def test_one_copy_is_enough_for_an_entry_to_be_kept(name: str) -> None:
    """Rule 5: of the other two one denies it and one does not know. It is written back to the whole write set."""
    cluster = Cluster()
    cluster.hold(name, 0)
    other = next(one for one in ("b0", "b1") if one != name)
    cluster.bookies[other].refuses_reads = Status.IO_ERROR
    assert Recovery(cluster).ends_at() == (0, length_up_to(0))
    assert cluster.holders(0) >= {"b0", "b1", "b2"}


@pytest.mark.parametrize("status", UNKNOWN)
@pytest.mark.parametrize("shape", [(3, 3, 2), (3, 3, 3), (2, 2, 2), (4, 3, 2), (3, 3, 1)])
def test_an_entry_is_not_absent_with_one_negative_too_few(shape: tuple[int, int, int], status: Status) -> None:
    """Rules 4 and 5, situation 35: Qw - Qa of entry 0's write set deny it, the others do not know."""
    e, w, a = shape
    cluster = Cluster(e, w, a)
    for slot in write_set(0, e, w)[w - a :]:
        cluster.bookies[f"b{slot}"].refuses_reads = status
    assert isinstance(Recovery(cluster).fails(), BookieUnavailableError)
    cluster.bookies[f"b{write_set(0, e, w)[w - a]}"].refuses_reads = None
    assert Recovery(cluster).ends_at() == (NO_ENTRY, 0)


def test_negatives_count_only_from_the_write_set_of_the_entry() -> None:
    """Rule 5, 4/2/2: entry 0 is on b0 and b1, which do not know; b2 and b3 have nothing."""
    cluster = Cluster(4, 2, 2)
    cluster.bookies["b0"].refuses_reads = cluster.bookies["b1"].refuses_reads = Status.UNKNOWN
    assert isinstance(Recovery(cluster).fails(), BookieUnavailableError)


def test_no_such_ledger_denies_every_entry_that_was_asked_for() -> None:
    recovery = Recovery(Cluster())
    recovery.run(until=lambda command: isinstance(command, SendRead))
    for read in recovery.reads[:2]:
        recovery.do(ReadEnded(read.request_id, Status.NO_SUCH_LEDGER))
    assert recovery.ends_at() == (NO_ENTRY, 0)
    assert len(recovery.reads) == 3


def test_no_such_ledger_denies_no_entry_of_other_write_sets() -> None:
    """Rule 5, 4/2/2: entry 4 is damaged on b0 and b1; b3, which does not hold it, lost all it was asked for, from 2 on."""
    cluster = Cluster(4, 2, 2)
    cluster.hold("b0", 0, 3, 4)
    cluster.hold("b1", 0, 1, 4)
    cluster.hold("b2", 1, 2)
    cluster.bookies["b0"].damaged = cluster.bookies["b1"].damaged = {4}
    cluster.bookies["b3"].refuses_reads = Status.NO_SUCH_LEDGER
    assert isinstance(Recovery(cluster).fails(), BookieUnavailableError)


@pytest.mark.parametrize("about", [None, -1, 500])
def test_a_negative_about_nothing_that_was_asked_for_is_unknown(about: int | None) -> None:
    """Rule 5; and who answers so is asked again after a pause only."""
    recovery = Recovery(Cluster())
    recovery.run(until=lambda command: isinstance(command, SendRead))
    for read in recovery.reads:
        recovery.do(ReadEnded(read.request_id, Status.NO_SUCH_ENTRY, "", about))
    assert len(recovery.sent(WriteMetadata)) == 1
    assert len(recovery.reads) == 3


def other_ledger(entry_id: int) -> EncodedBatch:
    """A whole and rightly signed entry, of another ledger."""
    ids, none = np.array([entry_id]), np.array([-1])
    payloads = pa.array([b""], pa.binary())
    digests = DIGESTER.compute(LEDGER + 1, ids, none, np.array([0]), payloads)
    batch = encode(EntryBatch(LEDGER + 1, ids, none, np.array([0]), digests, payloads), DigestType.CRC32C)
    assert batch is not None
    return batch


def torn(entry_id: int) -> EncodedBatch:
    batch = encode(entry(entry_id, -1), DigestType.CRC32C)
    assert batch is not None
    return replace(batch, body_crc32c=batch.body_crc32c ^ 1)


@pytest.mark.parametrize("wrong", [other_ledger, torn])
def test_an_answer_that_is_no_batch_of_the_ledger_is_unknown(wrong: Callable[[int], EncodedBatch]) -> None:
    """Rules 5 and 39."""
    recovery = Recovery(Cluster())
    recovery.run(until=lambda command: isinstance(command, SendRead))
    for read in recovery.reads:
        recovery.do(ReadArrived(read.request_id, wrong(0)))
        recovery.do(ReadEnded(read.request_id, Status.OK, "", 1))
    assert recovery.adds == []
    assert len(recovery.sent(WriteMetadata)) == 1
    assert len(recovery.reads) == 3


def test_the_entries_of_a_batch_are_judged_one_by_one_and_written_back_in_bounded_batches() -> None:
    """Rule 10: one of twelve entries is damaged on b0, and what follows it waits for b1."""
    payloads = pa.array([payload(i) for i in range(12)], pa.binary())
    sealed = seal(DIGESTER, LEDGER, 0, payloads, length_before=0, last_add_confirmed=NO_ENTRY)
    digests = [b"\0rot" if i == 4 else digest.as_py() for i, digest in enumerate(sealed.digests)]
    batch = encode(replace(sealed, digests=pa.array(digests, pa.binary(4))), DigestType.CRC32C)
    assert batch is not None
    cluster = Cluster()
    cluster.hold("b1", 4)
    recovery = Recovery(cluster, limits(request_bytes=100))
    recovery.run(until=lambda command: isinstance(command, SendRead))
    recovery.do(ReadArrived(recovery.reads[0].request_id, batch))
    assert max(add.batch.header.last_entry_id for add in recovery.adds) == 3
    recovery.do(ReadArrived(recovery.reads[1].request_id, cluster.bookies["b1"].encoded(4)))
    assert max(add.batch.header.last_entry_id for add in recovery.adds) == 11
    assert max(len(decode(add.batch)) for add in recovery.adds) == 3


def test_a_batch_that_a_bookie_joined_of_adds_with_a_lac_each_brings_all_its_entries() -> None:
    """Each entry is verified with its own LAC; what is written back carries the frozen one (S6)."""
    cluster = Cluster()
    cluster.hold("b0", *range(4))
    recovery = Recovery(cluster)
    recovery.run(until=lambda command: isinstance(command, SendRead))
    whole = coalesce([single(i, i - 1) for i in range(4)])
    assert whole.header.mixed_lac
    recovery.do(ReadArrived(recovery.reads[0].request_id, whole))
    written = [decode(add.batch) for add in recovery.adds]
    assert {one for batch in written for one in batch.entry_ids.tolist()} == {0, 1, 2, 3}
    assert {one for batch in written for one in batch.last_add_confirmed.tolist()} == {NO_ENTRY}


def single(entry_id: int, last_add_confirmed: int) -> EncodedBatch:
    batch = encode(entry(entry_id, last_add_confirmed), DigestType.CRC32C)
    assert batch is not None
    return batch


def test_a_bookie_that_keeps_sending_is_not_timed_out() -> None:
    cluster = Cluster()
    cluster.hold("b0", *range(3))
    recovery = Recovery(cluster)
    recovery.run(until=lambda command: isinstance(command, SendRead))
    first = recovery.reads[0]
    for entry_id in range(3):
        recovery.now_ms += TIMEOUT_MS // 2 + 1
        recovery.do(ReadArrived(first.request_id, cluster.bookies["b0"].encoded(entry_id)))
    assert CancelRead(first.request_id) not in recovery.log
    assert max(add.batch.header.last_entry_id for add in recovery.adds) == 2


@pytest.mark.parametrize("shape", [(3, 3, 2), (2, 2, 2), (5, 3, 2)])
def test_a_damaged_copy_is_unknown_and_never_negative(shape: tuple[int, int, int]) -> None:
    """Rules 5 and 39: entry 1 was confirmed, one copy is damaged, the others are lost or denied."""
    e, w, a = shape
    cluster = Cluster(e, w, a)
    for entry_id in (0, 1):
        cluster.hold(" ".join(f"b{slot}" for slot in write_set(entry_id, e, w)[w - a :]), entry_id)
    good, *damaged = (f"b{slot}" for slot in write_set(1, e, w)[w - a :])
    for name in (good, *damaged):
        cluster.bookies[name].damaged.add(1)
    assert isinstance(Recovery(cluster).fails(), BookieUnavailableError)
    cluster.bookies[good].damaged.clear()
    assert Recovery(cluster).ends_at() == (1, length_up_to(1))


def test_recovery_stops_at_the_first_missing_entry_even_if_later_ones_are_readable() -> None:
    """Rule 10, 4/2/2: entry 2 belongs to b2 and b3; entries 3 and 4 come from b0 and b1."""
    cluster = Cluster(4, 2, 2)
    for entry_id in (0, 1, 3, 4):
        cluster.hold(" ".join(f"b{slot}" for slot in write_set(entry_id, 4, 2)), entry_id)
    recovery = Recovery(cluster)
    assert recovery.ends_at() == (1, length_up_to(1))
    assert max(add.batch.header.last_entry_id for add in recovery.adds) == 1


def test_reads_stay_with_the_ensemble_of_the_beginning_whatever_recovery_itself_changes() -> None:
    """Rule 8, S8, 2/2/2: the entries are on b0 and b1, b1 fails the first write-back, the empty b2 takes its place."""
    cluster = Cluster(2, 2, 2)
    cluster.hold("b0 b1", *range(6))
    cluster.spares, cluster.bookies["b1"].refuses_adds = ["b2"], Status.IO_ERROR
    recovery = Recovery(cluster, limits(window_entries=1))
    assert recovery.ends_at() == (5, length_up_to(5))
    changed = next(i for i, one in enumerate(recovery.log) if isinstance(one, SendAdd) and one.bookie_id == "b2")
    assert {one.bookie_id for one in recovery.log[changed:] if isinstance(one, SendRead)} == {"b0", "b1"}
    assert cluster.bookies["b2"].entries.keys() == set(range(6))


def test_recovery_shows_nothing_to_any_reader() -> None:
    """Rule 14: no entry and no LAC leaves it but in its result."""
    cluster = Cluster()
    cluster.hold("b0 b1 b2", 0, 1, 2, lac=1)
    recovery = Recovery(cluster)
    recovery.run()
    assert recovery.sent(Deliver) == []
    assert [one.state for one in cluster.store.history] == [LedgerState.IN_RECOVERY, LedgerState.CLOSED]


def test_a_late_answer_to_a_request_that_was_given_up_is_ignored() -> None:
    recovery = Recovery(Cluster())
    recovery.run(until=lambda command: isinstance(command, SendRead))
    late = recovery.reads
    recovery.inbox.clear()
    recovery.pass_time()
    recovery.pass_time()
    assert len(recovery.reads) == 2 * len(late)
    for read in late:
        recovery.do(ReadEnded(read.request_id, Status.NO_SUCH_ENTRY, "", 0))
    assert len(recovery.sent(WriteMetadata)) == 1


def test_reads_stay_within_the_window_and_the_memory_that_waits_for_a_missing_entry_is_bounded() -> None:
    """4/2/2: b0 and b1, which have entry 0, are silent at first; the others bring only what the window allows."""
    cluster = Cluster(4, 2, 2)
    for entry_id in range(60):
        cluster.hold(" ".join(f"b{slot}" for slot in write_set(entry_id, 4, 2)), entry_id)
    recovery = Recovery(cluster, limits(window_entries=10, request_bytes=1))
    recovery.run(until=lambda command: isinstance(command, SendRead))
    recovery.silent = {"b0", "b1"}
    recovery.run(until=lambda command: recovery.now_ms >= PATIENCE_MS - 2 * TIMEOUT_MS)
    assert max(read.last for read in recovery.reads) == 9
    assert recovery.adds == []
    # The first entry that a bookie brings is above the bound already: no more is asked for.
    assert len([read for read in recovery.reads if read.bookie_id in ("b2", "b3")]) <= 6
    recovery.silent.clear()
    assert recovery.ends_at() == (59, length_up_to(59))
