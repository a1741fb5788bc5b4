"""How far a ledger is confirmed, over Apache's wire: long polls, explicit last adds confirmed, and what a bookie in limbo says.

Ref: docs/rules.md, protocol rules 14, 50, 59 and 62; Apache BookKeeper's LongPollReadEntryProcessorV3, ReadLacProcessorV3.
"""

from __future__ import annotations

import select
import time

import pytest

from bk_spark.config import DigestType
from bk_spark.proto import apache_wire_pb2 as pb
from tests.cluster.bookie.apache_client import (
    LAST,
    OTHER_PROOF,
    PROOF,
    ApacheServed,
    Version2,
    Version3,
    confirmation,
    entry,
    poll_3,
    status_3,
)

Client = Version2 | Version3
LONG_MS = 50_000


def begin_poll(apache: ApacheServed, client: Version3, previous: int, *, piggyback: bool, ledger_id: int = 1) -> None:
    """Returns when the poll waits."""
    request = poll_3(ledger_id, previous, LAST, LONG_MS, piggyback)
    before = apache.served.server.requests.polls.count
    client.send(client.request(pb.READ_ENTRY, readRequest=request).SerializeToString())
    apache.served.wait_for_polls(before + 1)


def answer_of(client: Version3) -> pb.Response:
    answer = pb.Response.FromString(client.receive())
    status_3(answer)
    return answer


# --- long polls


@pytest.mark.parametrize("piggyback", [False, True])
def test_a_long_poll_is_answered_when_the_ledger_is_confirmed_further(
    apache: ApacheServed, v2: Version2, v3: Version3, piggyback: bool
) -> None:
    assert v2.add(entry(1, 0)) == "OK"
    begin_poll(apache, v3, -1, piggyback=piggyback)
    assert not select.select([v3.socket], [], [], 0)[0]
    assert v2.add(entry(1, 1)) == "OK"
    answer = answer_of(v3)
    assert (answer.status, answer.readResponse.maxLAC) == (0, 0)
    if piggyback:
        assert (answer.readResponse.entryId, answer.readResponse.body) == (0, entry(1, 0))


def test_a_long_poll_of_what_is_confirmed_already_does_not_wait(v3: Version3) -> None:
    for entry_id in range(5):
        assert v3.add(entry(1, entry_id)) == "OK"
    answer = v3.poll(1, 1, timeout_ms=LONG_MS, piggyback=True)
    assert (answer.status, answer.readResponse.maxLAC) == (0, 3)
    assert (answer.readResponse.entryId, answer.readResponse.body) == (2, entry(1, 2))
    assert v3.poll(1, 1, timeout_ms=LONG_MS).readResponse.maxLAC == 3


def test_a_long_poll_tells_of_an_entry_that_is_at_another_bookie_by_its_last_add_confirmed_alone(v3: Version3) -> None:
    """Of a striped ledger."""
    assert v3.add(entry(1, 0)) == "OK"
    assert v3.add(entry(1, 3)) == "OK"
    answer = v3.poll(1, 0, timeout_ms=LONG_MS, piggyback=True)
    assert (answer.status, answer.readResponse.maxLAC, answer.readResponse.HasField("body")) == (0, 2, False)


@pytest.mark.parametrize("piggyback", [False, True])
@pytest.mark.parametrize("timeout_ms", [None, 0, 1, 300])
def test_a_long_poll_ends_when_its_time_is_up(v3: Version3, piggyback: bool, timeout_ms: int | None) -> None:
    assert v3.add(entry(1, 0)) == "OK"
    assert v3.add(entry(1, 1)) == "OK"
    began = time.monotonic()
    answer = v3.poll(1, 0, timeout_ms=timeout_ms, piggyback=piggyback)
    assert time.monotonic() - began >= (timeout_ms or 0) / 1000
    assert answer.status in (0, 403)
    assert answer.readResponse.maxLAC == 0
    if piggyback:
        assert not answer.readResponse.HasField("body")


def test_a_long_poll_of_one_ledger_does_not_wake_by_another(apache: ApacheServed, v2: Version2, v3: Version3) -> None:
    for ledger_id in (1, 2):
        assert v2.add(entry(ledger_id, 0)) == "OK"
    begin_poll(apache, v3, -1, piggyback=False)
    assert v2.add(entry(2, 1)) == "OK"
    assert v2.add(entry(2, 2)) == "OK"
    assert not select.select([v3.socket], [], [], 0)[0]
    assert v2.add(entry(1, 1)) == "OK"
    assert answer_of(v3).readResponse.maxLAC == 0


@pytest.mark.parametrize("end", ["fence", "explicit"])
def test_a_long_poll_ends_with_a_fence_and_with_an_explicit_last_add_confirmed(
    apache: ApacheServed, v3: Version3, end: str
) -> None:
    """Protocol rule 59: a fenced ledger may be confirmed no further."""
    other = apache.version_3()
    assert other.add(entry(1, 0)) == "OK"
    begin_poll(apache, v3, -1, piggyback=True)
    if end == "fence":
        assert other.read(1, LAST, fence=PROOF)[0] == "OK"
        assert answer_of(v3).status in (0, 403)
    else:
        assert other.write_lac(1, 0) == "OK"
        answer = answer_of(v3)
        assert (answer.status, answer.readResponse.maxLAC, answer.readResponse.body) == (0, 0, entry(1, 0))


def test_a_long_poll_of_a_ledger_that_was_never_seen_waits_for_it(apache: ApacheServed, v2: Version2, v3: Version3) -> None:
    """Its first entry may be under way. Apache's bookies answer at once, and their clients ask again and again."""
    assert status_3(v3.poll(1, -1, timeout_ms=100)) == "NOLEDGER"
    begin_poll(apache, v3, -1, piggyback=True)
    assert v2.add(entry(1, 0)) == "OK"
    assert v2.add(entry(1, 1)) == "OK"
    answer = answer_of(v3)
    assert (answer.status, answer.readResponse.maxLAC, answer.readResponse.body) == (0, 0, entry(1, 0))


@pytest.mark.parametrize("timeout_ms", [-1, 1 << 62, -(1 << 63)])
def test_a_time_that_is_no_time_harms_nothing(apache: ApacheServed, v3: Version3, timeout_ms: int) -> None:
    assert v3.add(entry(1, 0)) == "OK"
    request = poll_3(1, 5, LAST, timeout_ms, True)
    v3.send(v3.request(pb.READ_ENTRY, readRequest=request).SerializeToString())
    other = apache.version_3()
    assert other.read(1, 0)[0] == "OK"


def test_polls_of_a_connection_that_ends_are_given_up(apache: ApacheServed, v2: Version2, v3: Version3) -> None:
    assert v2.add(entry(1, 0)) == "OK"
    for _ in range(3):
        begin_poll(apache, v3, 5, piggyback=True)
    v3.close()
    apache.served.wait_for_polls(0)


def test_a_connection_has_128_polls_at_most_and_further_ones_are_answered_at_once(apache: ApacheServed, v3: Version3) -> None:
    """docs/guide/limits.md."""
    assert v3.add(entry(1, 0)) == "OK"
    for _ in range(128):
        begin_poll(apache, v3, 5, piggyback=False)
    assert v3.poll(1, 5, timeout_ms=LONG_MS).readResponse.maxLAC == -1


# --- explicit last adds confirmed


@pytest.mark.parametrize("kind", DigestType)
@pytest.mark.parametrize("end", ["", "checkpoint", "stop", "kill", "power_off"])
def test_an_explicit_last_add_confirmed_is_given_back_as_it_was_written(
    apache: ApacheServed, v3: Version3, kind: DigestType, end: str
) -> None:
    body = confirmation(1, 4, kind)
    for entry_id in range(5):
        assert v3.add(entry(1, entry_id, kind=kind)) == "OK"
    assert v3.write_lac(1, 4, body=body) == "OK"
    if end == "checkpoint":
        apache.checkpoint()
    elif end:
        apache.restart(end)
    client = apache.version_3()
    assert client.read_lac(1) == ("OK", body, entry(1, 4, kind=kind))
    assert client.poll(1, 3, timeout_ms=LONG_MS).readResponse.maxLAC == 4


def test_an_explicit_last_add_confirmed_never_falls(v3: Version3) -> None:
    assert v3.add(entry(1, 9)) == "OK"
    assert v3.write_lac(1, 9) == "OK"
    assert v3.write_lac(1, 3) in ("OK", "BADREQ")
    assert v3.poll(1, 8, timeout_ms=LONG_MS).readResponse.maxLAC == 9
    assert v3.read_lac(1) == ("OK", confirmation(1, 9), entry(1, 9))


def test_without_an_explicit_last_add_confirmed_there_is_the_last_entry_alone(v3: Version3) -> None:
    assert v3.add(entry(1, 0)) == "OK"
    assert v3.read_lac(1) == ("OK", b"", entry(1, 0))


def test_without_entries_there_is_the_explicit_last_add_confirmed_alone(apache: ApacheServed, v3: Version3) -> None:
    """A ledger whose entries are at other bookies of its ensemble."""
    assert v3.write_lac(1, 5) == "OK"
    assert v3.read_lac(1) == ("OK", confirmation(1, 5), b"")
    apache.restart("kill")
    assert apache.version_3().read_lac(1) == ("OK", confirmation(1, 5), b"")


def test_of_a_ledger_that_was_never_seen_nothing_is_confirmed(v3: Version3) -> None:
    assert v3.read_lac(1)[0] == "NOLEDGER"


def test_an_explicit_last_add_confirmed_under_another_key_is_unauthorized(v3: Version3) -> None:
    assert v3.add(entry(1, 0)) == "OK"
    assert v3.write_lac(1, 0, key=OTHER_PROOF) == "UA"
    assert v3.read_lac(1) == ("OK", b"", entry(1, 0))


def test_an_explicit_last_add_confirmed_is_answered_when_it_is_durable(apache: ApacheServed, v3: Version3) -> None:
    assert v3.add(entry(1, 0)) == "OK"
    apache.served.disk.hold_syncs()
    request = pb.WriteLacRequest(ledgerId=1, lac=0, masterKey=PROOF, body=confirmation(1, 0))
    v3.send(v3.request(pb.WRITE_LAC, writeLacRequest=request).SerializeToString())
    assert apache.served.disk.sync_begins.wait(60)
    assert not select.select([v3.socket], [], [], 0)[0]
    apache.served.disk.sync_may_end.set()
    assert answer_of(v3).status == 0
    apache.restart("power_off")
    assert apache.version_3().read_lac(1)[1] == confirmation(1, 0)


@pytest.mark.parametrize("size", [0, 1, 17, 1000, 1 << 20])
def test_an_explicit_last_add_confirmed_of_an_odd_size_is_refused_or_kept_whole(v3: Version3, size: int) -> None:
    assert v3.add(entry(1, 0)) == "OK"
    body = bytes(size)
    if v3.write_lac(1, 0, body=body) == "OK":
        assert v3.read_lac(1)[1] == body
    else:
        assert v3.read_lac(1)[1] == b""
    assert v3.read(1, 0)[0] == "OK"


# --- limbo


@pytest.fixture
def limbo(harness):
    """Ledger 1 has the entries 0 to 4, ledger 2 is fenced, ledger 3 was never seen; all of them are in limbo."""
    made = ApacheServed(harness)
    client = made.version_2()
    for ledger_id in (1, 2):
        for entry_id in range(5):
            assert client.add(entry(ledger_id, entry_id)) == "OK"
    assert client.read(2, LAST, fence=PROOF)[0] == "OK"
    made.close()
    harness.stop()
    harness.start(fence_watermark=10)
    harness.stop()
    made = ApacheServed(harness)
    yield made
    made.close()


@pytest.mark.parametrize("version", [2, 3])
def test_in_limbo_what_is_there_is_served_and_what_is_missing_is_unknown(limbo: ApacheServed, version: int) -> None:
    """Protocol rule 50."""
    client = limbo.of_version(version)
    for ledger_id in (1, 2):
        for fence in (None, PROOF):
            assert client.read(ledger_id, 4, fence=fence) == ("OK", entry(ledger_id, 4))
            assert client.read(ledger_id, 5, fence=fence) == ("UNKNOWN", b"")
            assert client.read(ledger_id, LAST, fence=fence) == ("UNKNOWN", b"")
    for entry_id in (0, LAST):
        assert client.read(3, entry_id) == ("UNKNOWN", b"")
        assert client.read(3, entry_id, fence=PROOF) == ("UNKNOWN", b"")
    assert client.read(11, 0)[0] == "NOLEDGER"  # above the watermark


@pytest.mark.parametrize("version", [2, 3])
def test_in_limbo_adds_are_unknown_and_those_of_recoveries_are_taken(limbo: ApacheServed, version: int) -> None:
    client = limbo.of_version(version)
    for ledger_id, status in ((1, "UNKNOWN"), (2, "FENCED"), (3, "UNKNOWN")):
        assert client.add(entry(ledger_id, 5)) == status
        assert client.add(entry(ledger_id, 5), recovery=True) == "OK"
        assert client.read(ledger_id, 5) == ("OK", entry(ledger_id, 5))
    assert client.add(entry(11, 0)) == "OK"


@pytest.mark.parametrize("version", [2, 3])
def test_a_fence_that_is_asked_for_in_limbo_holds_behind_it(limbo: ApacheServed, version: int) -> None:
    client = limbo.of_version(version)
    for ledger_id in (1, 3):
        assert client.read(ledger_id, LAST, fence=PROOF)[0] == "UNKNOWN"
    limbo.harness.bookie.admission.end_limbo()
    limbo.restart("power_off")
    client = limbo.of_version(version)
    for ledger_id in (1, 3):
        assert client.add(entry(ledger_id, 5)) == "FENCED"


def test_in_limbo_a_batch_read_gives_what_is_there_and_never_denies(limbo: ApacheServed) -> None:
    client = limbo.version_2()
    assert client.batch_read(1, 3) == ("OK", [entry(1, 3), entry(1, 4)])
    assert client.batch_read(1, 5) == ("UNKNOWN", [])
    assert client.batch_read(3, 0) == ("UNKNOWN", [])


def test_in_limbo_nothing_is_said_of_what_is_confirmed_or_of_which_entries_there_are(limbo: ApacheServed) -> None:
    client = limbo.version_3()
    for ledger_id in (1, 3):
        assert client.read_lac(ledger_id)[0] == "UNKNOWN"
        assert client.listed(ledger_id)[0] == "UNKNOWN"
        for piggyback in (False, True):
            assert status_3(client.poll(ledger_id, 3, timeout_ms=0, piggyback=piggyback)) == "UNKNOWN"


def test_in_limbo_an_explicit_last_add_confirmed_is_taken(limbo: ApacheServed) -> None:
    """Protocol rule 62."""
    assert limbo.version_3().write_lac(1, 4) == "OK"
    limbo.harness.bookie.admission.end_limbo()
    assert limbo.version_3().read_lac(1) == ("OK", confirmation(1, 4), entry(1, 4))
