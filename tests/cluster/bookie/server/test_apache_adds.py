"""Adds, fences and forces over Apache's wire: what is taken, what is refused, and when it is answered.

Ref: docs/rules.md, protocol rules 2, 33 to 35, 47 and 65; Apache BookKeeper's WriteEntryProcessor and ReadEntryProcessor.
"""

from __future__ import annotations

import contextlib
import select
import struct

import pytest

from bk_spark.config import DigestType
from bk_spark.proto import apache_wire_pb2 as pb
from tests.cluster.bookie.apache_client import (
    LAST,
    OTHER_PROOF,
    PROOF,
    STATUSES_2,
    ApacheServed,
    Version2,
    Version3,
    add_2,
    add_3,
    entry,
    read_2,
    read_3,
    status_3,
    unpack_2,
)
from tests.cluster.bookie.served import DEADLINE_S

Client = Version2 | Version3
OTHER = b"another"


def has_answer(client: Client) -> bool:
    """Whether something has come by now."""
    return bool(select.select([client.socket], [], [], 0)[0])


def send_add(client: Client, data: bytes) -> None:
    if isinstance(client, Version2):
        client.send(add_2(data))
    else:
        client.send(client.request(pb.ADD_ENTRY, addRequest=add_3(data)).SerializeToString())


def send_fence(client: Client, ledger_id: int, entry_id: int = LAST) -> None:
    if isinstance(client, Version2):
        client.send(read_2(ledger_id, entry_id, fence=PROOF))
    else:
        client.send(client.request(pb.READ_ENTRY, readRequest=read_3(ledger_id, entry_id, PROOF)).SerializeToString())


def received_status(client: Client) -> str:
    answer = client.receive()
    if isinstance(client, Version2):
        return STATUSES_2[unpack_2(answer, answer[1])[0]]
    return status_3(pb.Response.FromString(answer))


def test_an_add_is_answered_when_it_is_durable_and_not_before(apache: ApacheServed, either: Client) -> None:
    disk = apache.served.disk
    assert either.add(entry(1, 0)) == "OK"
    disk.hold_syncs()
    send_add(either, entry(1, 1))
    assert disk.sync_begins.wait(DEADLINE_S)
    assert not has_answer(either)
    disk.sync_may_end.set()
    assert received_status(either) == "OK"
    apache.restart("power_off")
    assert apache.version_2().read(1, 1) == ("OK", entry(1, 1))


def test_an_add_whose_sync_fails_is_an_error(apache: ApacheServed, either: Client) -> None:
    apache.served.disk.fail("sync", "journal")
    assert either.add(entry(1, 0)) not in ("OK", "NOENTRY", "NOLEDGER")


def test_an_add_that_is_repeated_is_taken_again(apache: ApacheServed, either: Client) -> None:
    for end in ("", "", "checkpoint", "stop", "kill"):
        if end == "checkpoint":
            apache.checkpoint()
        elif end:
            apache.restart(end)
            either = apache.of_version(2 if isinstance(either, Version2) else 3)
        assert either.add(entry(1, 0)) == "OK"
        assert either.read(1, 0) == ("OK", entry(1, 0))


@pytest.mark.parametrize("is_written_out", [False, True])
@pytest.mark.parametrize("recovery", [False, True])
def test_another_payload_under_a_stored_id_is_refused_and_what_is_stored_stays(
    apache: ApacheServed, either: Client, recovery: bool, is_written_out: bool
) -> None:
    """Protocol rule 65."""
    assert either.add(entry(1, 0)) == "OK"
    if is_written_out:
        apache.checkpoint()
    assert either.add(entry(1, 0, OTHER), recovery=recovery) not in ("OK", "NOENTRY", "NOLEDGER")
    assert either.read(1, 0) == ("OK", entry(1, 0))


@pytest.mark.parametrize("kind", DigestType)
@pytest.mark.parametrize("is_written_out", [False, True])
def test_a_recovery_may_store_an_entry_again_with_another_last_add_confirmed(
    apache: ApacheServed, either: Client, kind: DigestType, is_written_out: bool
) -> None:
    """Protocol rule 33: the copies differ in their headers and digests, not in their payloads."""
    assert either.add(entry(1, 3, confirmed=1, kind=kind)) == "OK"
    if is_written_out:
        apache.checkpoint()
    again = entry(1, 3, confirmed=2, kind=kind)
    assert either.add(again, recovery=True) == "OK"
    assert either.read(1, 3) == ("OK", again)
    apache.restart("kill")
    assert apache.version_2().read(1, 3) == ("OK", again)


def test_two_adds_under_one_id_at_once_leave_one_of_them(v2: Version2) -> None:
    v2.send(add_2(entry(1, 0)), add_2(entry(1, 0, OTHER)), add_2(entry(1, 0)))
    rcs = [unpack_2(v2.receive(), 1)[0] for _ in range(3)]
    assert sorted(rcs)[:2] == [0, 0]
    assert sorted(rcs)[2] not in (0, 1, 2)
    assert v2.read(1, 0) == ("OK", entry(1, 0))


def test_the_first_add_fixes_the_key_and_another_one_is_unauthorized(apache: ApacheServed, either: Client) -> None:
    assert either.add(entry(1, 0)) == "OK"
    for _ in range(2):
        assert either.add(entry(1, 1), key=OTHER_PROOF) == "UA"
        assert either.add(entry(1, 1), key=OTHER_PROOF, recovery=True) == "UA"
        assert either.read(1, 0, fence=OTHER_PROOF)[0] == "UA"
        assert either.add(entry(1, 1)) == "OK"  # nothing was fenced
        apache.restart("kill")
        either = apache.of_version(2 if isinstance(either, Version2) else 3)


def test_a_fence_fixes_the_key_too(either: Client) -> None:
    assert either.read(1, LAST, fence=PROOF)[0] in ("NOENTRY", "NOLEDGER")
    assert either.add(entry(1, 0), key=OTHER_PROOF, recovery=True) == "UA"
    assert either.add(entry(1, 0), recovery=True) == "OK"


@pytest.mark.parametrize("key", [b"", b"short", bytes(28), bytes(200)])
def test_a_key_of_another_size_is_no_other_key_than_itself(v3: Version3, key: bytes) -> None:
    """Version 3 does not say how long a key is."""
    assert v3.add(entry(1, 0)) == "OK"
    assert v3.add(entry(1, 1), key=key) in ("UA", "BADREQ")
    first = v3.add(entry(2, 0), key=key)
    if first == "OK":
        assert v3.add(entry(2, 1), key=PROOF) == "UA"
        assert v3.add(entry(2, 1), key=key) == "OK"


@pytest.mark.parametrize("ledger_id", [1, 2, 3])
def test_a_fence_is_answered_when_it_is_durable_and_not_before(apache: ApacheServed, either: Client, ledger_id: int) -> None:
    """Protocol rule 35: also of an entry that is missing (ledger 2), and of a ledger that was never seen (ledger 3)."""
    assert either.add(entry(1, 0)) == "OK"
    assert either.add(entry(2, 0)) == "OK"
    disk = apache.served.disk
    disk.hold_syncs()
    send_fence(either, ledger_id, 7 if ledger_id == 2 else LAST)
    assert disk.sync_begins.wait(DEADLINE_S)
    assert not has_answer(either)
    disk.sync_may_end.set()
    assert received_status(either) in (("OK",), ("NOENTRY",), ("NOENTRY", "NOLEDGER"))[ledger_id - 1]
    for end in ("", "kill", "stop", "power_off"):
        if end:
            apache.restart(end)
        client = apache.of_version(2 if isinstance(either, Version2) else 3)
        assert client.add(entry(ledger_id, 1)) == "FENCED"
        assert client.add(entry(ledger_id, 1), recovery=True) == "OK"


def test_a_fence_whose_sync_fails_is_an_error(apache: ApacheServed, either: Client) -> None:
    assert either.add(entry(1, 0)) == "OK"
    apache.served.disk.fail("sync", "journal")
    for entry_id in (LAST, 0, 9):
        assert either.read(1, entry_id, fence=PROOF)[0] not in ("OK", "NOENTRY", "NOLEDGER")


def test_a_fence_may_be_repeated_and_gives_the_entry(either: Client) -> None:
    assert either.add(entry(1, 0)) == "OK"
    for _ in range(3):
        assert either.read(1, 0, fence=PROOF) == ("OK", entry(1, 0))
    assert either.read(1, LAST, fence=PROOF) == ("OK", entry(1, 0))
    assert either.read(1, 1, fence=PROOF) == ("NOENTRY", b"")


def test_a_repeated_add_of_a_fenced_ledger_is_refused_as_fenced(either: Client) -> None:
    """It may be a late one of a writer that is fenced: what it is told must not become a confirmation."""
    assert either.add(entry(1, 0)) == "OK"
    assert either.read(1, LAST, fence=PROOF)[0] == "OK"
    assert either.add(entry(1, 0)) == "FENCED"


def test_a_batch_read_fences_as_well(v2: Version2) -> None:
    assert v2.add(entry(1, 0)) == "OK"
    assert v2.batch_read(1, 0, fence=OTHER_PROOF)[0] == "UA"
    assert v2.batch_read(1, 0, fence=PROOF) == ("OK", [entry(1, 0)])
    assert v2.add(entry(1, 1)) == "FENCED"


def test_a_fence_without_a_key_is_refused(v3: Version3) -> None:
    assert v3.add(entry(1, 0)) == "OK"
    request = pb.ReadRequest(ledgerId=1, entryId=0, flag=pb.ReadRequest.FENCE_LEDGER)
    assert v3.status(pb.READ_ENTRY, readRequest=request) in ("UA", "BADREQ")
    assert v3.add(entry(1, 1)) == "OK"


def test_a_read_only_bookie_takes_recoveries_and_fences_alone(apache: ApacheServed, either: Client) -> None:
    """Protocol rule 47."""
    assert either.add(entry(1, 0)) == "OK"
    apache.harness.bookie.set_read_only(True)
    assert either.add(entry(1, 1)) == "READONLY"
    assert either.add(entry(2, 0)) == "READONLY"
    assert either.add(entry(1, 1), recovery=True) == "OK"
    assert either.read(1, 1, fence=PROOF) == ("OK", entry(1, 1))
    assert either.add(entry(1, 2)) == "FENCED"
    apache.harness.bookie.set_read_only(False)
    assert either.add(entry(3, 0)) == "OK"


def test_an_add_with_deferred_sync_is_answered_before_it_is_durable_and_a_force_is_not(
    apache: ApacheServed, v3: Version3
) -> None:
    disk = apache.served.disk
    assert v3.add(entry(1, 0)) == "OK"
    disk.hold_syncs()
    assert v3.add(entry(1, 1, confirmed=-1), write_flags=1) == "OK"
    v3.send(v3.request(pb.FORCE_LEDGER, forceLedgerRequest=pb.LedgerRequest(ledgerId=1)).SerializeToString())
    assert disk.sync_begins.wait(DEADLINE_S)
    assert not has_answer(v3)
    disk.sync_may_end.set()
    assert received_status(v3) == "OK"
    apache.restart("power_off")
    assert apache.version_3().read(1, 1)[0] == "OK"


def test_a_force_whose_sync_fails_is_an_error(apache: ApacheServed, v3: Version3) -> None:
    assert v3.add(entry(1, 0)) == "OK"
    apache.served.disk.fail("sync", "journal")
    assert v3.add(entry(1, 1), write_flags=1) in ("OK", "IO", "UNKNOWN")
    assert v3.force(1) not in ("OK", "NOENTRY", "NOLEDGER")


@pytest.mark.parametrize("kind", DigestType)
@pytest.mark.parametrize("size", [0, 1, 100, 5_000, 100_000])
def test_entries_are_stored_byte_for_byte(apache: ApacheServed, either: Client, kind: DigestType, size: int) -> None:
    """Those of 5,000 bytes and more pass the journal by."""
    payload = bytes(range(256)) * (size // 256 + 1)
    sent = [
        struct.pack(">4q", 1, entry_id, confirmed, length) + b"d" * width + payload[:size]
        for width in [{DigestType.CRC32: 8, DigestType.HMAC: 20, DigestType.CRC32C: 4, DigestType.DUMMY: 0}[kind]]
        for entry_id, (confirmed, length) in enumerate([(-1, 0), (-1, 1), (1, 7 << 40), (1, 3), (-1, -5)])
    ]
    for one in sent:
        assert either.add(one) == "OK"
    for end in ("", "checkpoint", "stop", "kill"):
        if end == "checkpoint":
            apache.checkpoint()
        elif end:
            apache.restart(end)
        client = apache.of_version(2 if isinstance(either, Version2) else 3)
        assert [client.read(1, entry_id) for entry_id in range(len(sent))] == [("OK", one) for one in sent]


def test_an_entry_of_its_ids_and_last_add_confirmed_alone_is_stored(apache: ApacheServed, either: Client) -> None:
    """A bookie looks at no more than its first 24 bytes."""
    least = struct.pack(">3q", 1, 0, -1)
    assert either.add(least) == "OK"
    apache.checkpoint()
    assert either.read(1, 0) == ("OK", least)


@pytest.mark.parametrize("ids", [(-1, 0), (1, -2), (1, -1), (1, 1 << 62 | 1), (-(1 << 63), 5)])
def test_ids_that_no_entry_has_are_refused(either: Client, ids: tuple[int, int]) -> None:
    assert either.add(struct.pack(">4q", *ids, -1, 0) + bytes(4)) not in ("OK", "NOENTRY", "NOLEDGER", "FENCED")
    assert either.add(entry(1, 0)) == "OK"


def test_a_message_that_names_other_ids_than_its_entry_is_refused(v3: Version3) -> None:
    """Else two names were there for one entry."""
    for ledger_id, entry_id in ((1, 6), (2, 5)):
        request = pb.AddRequest(ledgerId=ledger_id, entryId=entry_id, masterKey=PROOF, body=entry(1, 5))
        assert v3.status(pb.ADD_ENTRY, addRequest=request) == "BADREQ"
    assert v3.read(1, 5)[0] == "NOLEDGER"


@pytest.mark.parametrize("size", range(0, 24, 7))
def test_an_entry_without_its_ids_harms_no_other_request(v2: Version2, size: int) -> None:
    v2.send(add_2(entry(1, 0)[:size]), read_2(1, 0))
    try:
        answers = [v2.receive()]
        while answers[-1][1] != 2:
            answers.append(v2.receive())
    except (EOFError, ConnectionError):
        return
    assert unpack_2(answers[-1], 2) == (1, 1, 0)


def test_the_last_entry_is_the_highest_one_not_the_latest(apache: ApacheServed, either: Client) -> None:
    for entry_id in (4, 2, 9, 1):
        assert either.add(entry(1, entry_id)) == "OK"
        assert either.read(1, LAST)[1] == entry(1, max(entry_id, 4) if entry_id != 1 else 9)
    apache.restart()
    assert apache.version_2().read(1, LAST) == ("OK", entry(1, 9))


@pytest.mark.parametrize("key", [b"", b"short"])
def test_a_fence_of_version_2_without_a_whole_key_takes_no_ledger_from_its_owner(apache: ApacheServed, key: bytes) -> None:
    client = apache.version_2()
    client.send(read_2(1, LAST, fence=key))
    with contextlib.suppress(EOFError, ConnectionError):
        assert unpack_2(client.receive(), 2)[0] in (100, 102)
    assert apache.version_2().add(entry(1, 0)) == "OK"


@pytest.mark.parametrize(
    "odd", [entry(1, 7, b"another"), struct.pack(">4q", 1, 1 << 62 | 5, -1, 0) + bytes(11), entry(1, 30, confirmed=-9)]
)
@pytest.mark.parametrize("version", [2, 3])
def test_an_add_that_is_refused_takes_none_of_those_beside_it_along(apache: ApacheServed, version: int, odd: bytes) -> None:
    """They came together, and are stored together; but each is an add of its own. Another content, an id and a last add
    confirmed that no entry has."""
    client = apache.of_version(version)
    assert client.add(entry(1, 7)) == "OK"
    fresh = [entry(1, one) for one in range(8, 28)]
    entries = [odd, *fresh] if odd[8:16] == entry(1, 7)[8:16] else [*fresh, odd]
    for one in entries[:-1]:
        assert len(one) == len(odd)
    if isinstance(client, Version2):
        client.send(*(add_2(one) for one in entries))
        answers = [unpack_2(client.receive(), 1) for _ in entries]
        statuses = {entry_id: STATUSES_2[rc] for rc, _, entry_id in answers}
    else:
        client.send(*(client.request(pb.ADD_ENTRY, addRequest=add_3(one)).SerializeToString() for one in entries))
        found = [pb.Response.FromString(client.receive()) for _ in entries]
        statuses = {one.addResponse.entryId: status_3(one) for one in found}
    assert statuses.pop(int.from_bytes(odd[8:16])) not in ("OK", "NOENTRY", "NOLEDGER", "FENCED")
    assert statuses == dict.fromkeys(range(8, 28), "OK")
