"""Apache's wire has no place for a key in most reads: nothing of a keyed ledger is served there. Ref: DESIGN.md, "Who may do
what"."""

from __future__ import annotations

import logging

import pytest

from bk_spark.bookie.server.audit import WRONG_KEY
from bk_spark.entries.digest import write_proof
from bk_spark.telemetry.logging_setup import AUDIT_LOGGER
from bk_spark.wire.messages import Status
from tests.cluster.bookie.apache_client import PROOF, ApacheServed, Version2, Version3, entry, status_3
from tests.cluster.bookie.served import DEADLINE_S

SECRET, TOKEN = b"s" * 32, -77
WRITE_PROOF = write_proof(SECRET, 1, TOKEN)
KEY = WRITE_PROOF + TOKEN.to_bytes(8, "little", signed=True)


def added(apache: ApacheServed, first: int, last: int) -> Status:
    """By the keyed ledger's own writer, over gRPC."""
    return Status(apache.served.add(1, first, last, key=KEY).result(DEADLINE_S))


@pytest.fixture
def keyed(apache: ApacheServed) -> ApacheServed:
    """Ledger 1 is keyed, and has entries 0 to 4."""
    assert added(apache, 0, 4) is Status.OK
    return apache


def test_no_read_of_version_2_is_answered(keyed: ApacheServed) -> None:
    client = keyed.version_2()
    assert client.add(entry(2, 0)) == "OK"
    for entry_id in (0, 4, -1, 99):
        assert client.read(1, entry_id) == ("UA", b"")
    for proof in (PROOF, WRITE_PROOF, KEY[8:]):
        assert client.read(1, 0, fence=proof) == ("UA", b"")
        assert client.batch_read(1, 0, count=5, fence=proof) == ("UA", [])
    assert client.batch_read(1, 0, count=5) == ("UA", [])
    assert client.read(2, 0) == ("OK", entry(2, 0)), "the ledger without keys is served as before"


def test_no_read_of_version_3_is_answered(keyed: ApacheServed) -> None:
    client = keyed.version_3()
    assert client.add(entry(2, 0)) == "OK"
    for entry_id in (0, 4, -1, 99):
        assert client.read(1, entry_id) == ("UA", b"")
    for proof in (PROOF, WRITE_PROOF, KEY, b""):
        assert client.read(1, 0, fence=proof) == ("UA", b"")
    for piggyback in (False, True):
        polled = client.poll(1, -1, timeout_ms=10, piggyback=piggyback)
        assert (status_3(polled), polled.readResponse.body) == ("UA", b"")
        assert polled.readResponse.maxLAC in (0, -1)
    assert client.read_lac(1) == ("UA", b"", b"")
    assert client.listed(1) == ("UA", [])
    assert client.force(1) == "UA"
    assert client.read(2, 0) == ("OK", entry(2, 0))


@pytest.mark.parametrize("proof", [PROOF, WRITE_PROOF])
def test_nothing_is_written_over_apaches_wire(keyed: ApacheServed, either: Version2 | Version3, proof: bytes) -> None:
    for recovery in (False, True):
        assert either.add(entry(1, 5), key=proof, recovery=recovery) == "UA"
    if isinstance(either, Version3):
        assert either.write_lac(1, 4, key=proof) == "UA"
    assert added(keyed, 5, 5) is Status.OK, "it was not fenced"


def test_refused_reads_are_in_the_audit_log(keyed: ApacheServed, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, AUDIT_LOGGER)
    keyed.version_2().read(1, 0)
    assert [one.getMessage() for one in caplog.records if WRONG_KEY in one.getMessage()]
    client = keyed.version_3()
    for ask in (client.read_lac, client.listed, client.force):
        assert "UA" in ask(1)
