"""Reads over Apache's wire: of an entry, of the last one, of many in one answer, and which entries there are.

Ref: Apache BookKeeper's BatchedReadEntryProcessor and AvailabilityOfEntriesOfLedger; docs/rules.md, protocol rule 39.
"""

from __future__ import annotations

import os
import struct

import pytest

from bk_spark.proto import apache_wire_pb2 as pb
from tests.cluster.bookie.apache_client import (
    LAST,
    PROOF,
    ApacheServed,
    Version2,
    Version3,
    add_2,
    batch_read_2,
    entry,
    read_3,
    unpack_2,
    unpack_batch_2,
)

Client = Version2 | Version3
ENDS = ["", "checkpoint", "stop", "kill"]


def add_all(client: Version2, ledger_id: int, ids: list[int], payload: bytes = b"payload") -> None:
    client.send(*(add_2(entry(ledger_id, one, payload)) for one in ids))
    assert {unpack_2(client.receive(), 1)[0] for _ in ids} == {0}


def ended(apache: ApacheServed, end: str, version: int = 2) -> Version2 | Version3:
    if end == "checkpoint":
        apache.checkpoint()
    elif end:
        apache.restart(end)
    return apache.of_version(version)


def striped(count: int, slot: int = 0, ensemble: int = 3, quorum: int = 2) -> list[int]:
    """The ids of one bookie of an ensemble."""
    return [one for one in range(count) if (slot - one) % ensemble < quorum]


def test_a_ledger_that_was_never_seen_is_told_from_an_entry_that_is_missing(either: Client) -> None:
    assert either.read(1, 0) == ("NOLEDGER", b"")
    assert either.read(1, LAST) == ("NOLEDGER", b"")
    assert either.add(entry(1, 3)) == "OK"
    assert either.read(1, 0) == ("NOENTRY", b"")
    assert either.read(1, 4) == ("NOENTRY", b"")
    assert either.read(2, 3) == ("NOLEDGER", b"")


def test_a_fenced_ledger_without_entries_has_no_last_one(either: Client) -> None:
    either.read(1, LAST, fence=PROOF)
    assert either.read(1, LAST) == ("NOENTRY", b"")


@pytest.mark.parametrize("entry_id", [-2, -(1 << 63), (1 << 63) - 1, 1 << 62])
def test_a_read_of_an_id_that_no_entry_has_gives_none(either: Client, entry_id: int) -> None:
    assert either.add(entry(1, 0)) == "OK"
    assert either.read(1, entry_id)[0] in ("NOENTRY", "BADREQ")
    assert either.read(1, 0)[0] == "OK"


def test_an_answer_says_of_which_read_it_is(v3: Version3) -> None:
    """Also the answer to a read of the last one: clients match answers by what they asked for."""
    for entry_id in range(3):
        assert v3.add(entry(1, entry_id)) == "OK"
    answer = v3.ask(pb.READ_ENTRY, readRequest=read_3(1, LAST)).readResponse
    assert (answer.ledgerId, answer.entryId, answer.body) == (1, LAST, entry(1, 2))
    answer = v3.ask(pb.READ_ENTRY, readRequest=read_3(1, 1)).readResponse
    assert (answer.entryId, answer.body) == (1, entry(1, 1))


def test_an_answer_of_version_3_says_how_far_the_ledger_is_confirmed(v3: Version3) -> None:
    for entry_id in range(5):
        assert v3.add(entry(1, entry_id)) == "OK"
    assert v3.ask(pb.READ_ENTRY, readRequest=read_3(1, LAST)).readResponse.maxLAC == 3
    assert v3.ask(pb.READ_ENTRY, readRequest=read_3(1, 0)).readResponse.maxLAC == 3


# --- batch reads


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("count", [0, -1, 3, 10, 100])
def test_a_batch_read_gives_entries_in_order_up_to_the_count(apache: ApacheServed, v2: Version2, end: str, count: int) -> None:
    add_all(v2, 1, list(range(10)))
    client = ended(apache, end)
    assert isinstance(client, Version2)
    wanted = [entry(1, one) for one in range(2, 10)]
    assert client.batch_read(1, 2, count=count) == ("OK", wanted[:count] if count > 0 else wanted)


@pytest.mark.parametrize("end", ENDS)
def test_a_batch_read_ends_where_its_size_would_be_exceeded(apache: ApacheServed, v2: Version2, end: str) -> None:
    add_all(v2, 1, list(range(10)), bytes(964))
    client = ended(apache, end)
    assert isinstance(client, Version2)
    one = len(entry(1, 0, bytes(964)))
    for size in (one * 3 + 3 * 4 + 100, 5 * one, 3 * (one + 4), 6000, 1_000_000):
        client.send(batch_read_2(1, 0, 5, size=size))
        answer = client.receive()
        entries = unpack_batch_2(answer)[-1]
        assert len(answer) <= size
        assert len(entries) >= min(10, size // (one + 4) - 1)


@pytest.mark.parametrize("size", [1, 0, -1, 100])
def test_a_batch_read_gives_one_entry_at_least(v2: Version2, size: int) -> None:
    add_all(v2, 1, list(range(5)), bytes(1000))
    status, entries = v2.batch_read(1, 1, size=size, count=3)
    assert (status, entries[:1]) == ("OK", [entry(1, 1, bytes(1000))])
    assert len(entries) == 1 or size <= 0


def test_a_batch_read_is_never_larger_than_5_mib(v2: Version2) -> None:
    for entry_id in range(8):
        assert v2.add(struct.pack(">4q", 1, entry_id, entry_id - 1, 0) + bytes(1 << 20)) == "OK"
    for size in (1 << 62, 100 << 20):
        v2.send(batch_read_2(1, 0, 5, size=size))
        answer = v2.receive()
        assert len(answer) <= 5 << 20
        assert len(unpack_batch_2(answer)[-1]) == 4


@pytest.mark.parametrize("end", ENDS)
def test_a_batch_read_ends_at_the_first_entry_that_is_missing(apache: ApacheServed, v2: Version2, end: str) -> None:
    add_all(v2, 1, [0, 1, 2, 4, 5])
    client = ended(apache, end)
    assert isinstance(client, Version2)
    assert client.batch_read(1, 0) == ("OK", [entry(1, one) for one in (0, 1, 2)])
    assert client.batch_read(1, 3) == ("NOENTRY", [])
    assert client.batch_read(1, 4) == ("OK", [entry(1, one) for one in (4, 5)])
    assert client.batch_read(1, 6) == ("NOENTRY", [])
    assert client.batch_read(2, 0) == ("NOLEDGER", [])


@pytest.mark.parametrize("end", ENDS)
def test_a_batch_read_of_a_striped_ledger_ends_at_its_gaps(apache: ApacheServed, v2: Version2, end: str) -> None:
    ids = striped(30)
    add_all(v2, 1, ids)
    client = ended(apache, end)
    assert isinstance(client, Version2)
    for first in range(30):
        run = []
        while first + len(run) in ids:
            run.append(first + len(run))
        wanted = ("OK", [entry(1, one) for one in run]) if run else ("NOENTRY", [])
        assert client.batch_read(1, first) == wanted


def test_batch_reads_of_the_same_entries_are_told_apart_by_their_request_ids(v2: Version2) -> None:
    add_all(v2, 1, list(range(6)))
    counts = {-5: 1, 7: 2, (1 << 63) - 1: 3, 0: 4}
    v2.send(*(batch_read_2(1, 0, number, count=count) for number, count in counts.items()))
    answers = [unpack_batch_2(v2.receive()) for _ in counts]
    assert {number: len(entries) for *_, number, entries in answers} == counts


def test_a_batch_read_over_entries_of_many_stored_batches_is_whole(apache: ApacheServed, v2: Version2) -> None:
    """Some written out, some large, some in memory alone."""
    add_all(v2, 1, list(range(5)))
    apache.checkpoint()
    add_all(v2, 1, list(range(5, 8)), bytes(20_000))
    add_all(v2, 1, list(range(8, 12)))
    sizes = dict.fromkeys(range(12), b"payload") | dict.fromkeys(range(5, 8), bytes(20_000))
    assert v2.batch_read(1, 0) == ("OK", [entry(1, one, sizes[one]) for one in range(12)])


# --- the list of entries


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    "ids", [[0], [5], list(range(100)), [0, 1, 2, 7, 8, 20], striped(60), striped(60, 2), striped(61, 1, 5, 3), [3, 1, 2, 0]]
)
def test_the_list_of_entries_names_just_those_that_are_there(apache: ApacheServed, end: str, ids: list[int]) -> None:
    add_all(apache.version_2(), 1, ids)
    add_all(apache.version_2(), 2, [77])
    client = ended(apache, end, 3)
    assert isinstance(client, Version3)
    assert client.listed(1) == ("OK", sorted(ids))


def test_the_list_of_entries_of_a_ledger_that_was_never_seen_says_so(v3: Version3) -> None:
    assert v3.listed(1) == ("NOLEDGER", [])


def test_the_list_of_a_ledger_without_entries_is_empty(v3: Version3) -> None:
    v3.read(1, LAST, fence=PROOF)
    assert v3.listed(1) in (("OK", []), ("NOENTRY", []))


def test_the_list_of_entries_of_a_long_striped_ledger_is_one_group(apache: ApacheServed, v3: Version3) -> None:
    add_all(apache.version_2(), 1, striped(3000))
    apache.checkpoint()
    request = pb.LedgerRequest(ledgerId=1)
    answer = v3.ask(pb.GET_LIST_OF_ENTRIES_OF_LEDGER, getListOfEntriesOfLedgerRequest=request)
    data = answer.getListOfEntriesOfLedgerResponse.availabilityOfEntriesOfLedger
    assert len(data) <= 64 + 3 * 24  # its ends may be groups of their own
    assert v3.listed(1) == ("OK", striped(3000))


# --- what is stored of thousands of single adds


@pytest.mark.parametrize("ids", [list(range(3000)), striped(3000), striped(3000, 1), striped(3000, 2)])
def test_thousands_of_single_adds_are_few_rows_of_the_index(apache: ApacheServed, v2: Version2, ids: list[int]) -> None:
    add_all(v2, 1, ids)
    apache.checkpoint()
    assert len(list(apache.harness.bookie.storage.batches(1, 0, 2999).overlapping(0, 2999))) <= 4
    apache.restart("kill")
    again = apache.version_2()
    for one in (0, 1, 2, 1500, 1501, 1502, 2997, 2998, 2999):
        assert again.read(1, one) == (("OK", entry(1, one)) if one in ids else ("NOENTRY", b""))


def test_the_space_of_the_bookies_disk_is_told(apache: ApacheServed, v3: Version3) -> None:
    for requested in (1, 2, 3):
        answer = v3.ask(pb.GET_BOOKIE_INFO, getBookieInfoRequest=pb.BookieInfoRequest(requested=requested))
        info = answer.getBookieInfoResponse
        assert answer.status == 0
        assert (info.totalDiskCapacity > 0) is bool(requested & 1)
        assert (info.freeDiskSpace > 0) is bool(requested & 2)
        if requested == 3:
            space = os.statvfs(apache.harness.data_dir)
            assert info.totalDiskCapacity == space.f_blocks * space.f_frsize
            assert 0 < info.freeDiskSpace <= info.totalDiskCapacity
