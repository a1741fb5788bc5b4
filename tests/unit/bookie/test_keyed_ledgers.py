"""A keyed ledger has a key for those who read it and one for those who write to it. Ref: DESIGN.md, "Who may do what"."""

from __future__ import annotations

import pytest

from bk_spark.bookie.whole_read import WholeReads
from bk_spark.entries.digest import is_foreign, master_key, master_key_hash, read_password, write_proof
from bk_spark.wire.messages import NO_KEY, ForceRequest, LastAddConfirmedRequest, Status
from tests.unit.bookie.harness import BOOKIE_ID

SECRET, OTHER_SECRET, TOKEN = b"s" * 32, b"t" * 32, -77


def write_key(ledger_id: int = 1, secret: bytes = SECRET, token: int = TOKEN) -> bytes:
    return write_proof(secret, ledger_id, token) + token.to_bytes(8, "little", signed=True)


def read_key(ledger_id: int = 1, secret: bytes = SECRET, token: int = TOKEN) -> bytes:
    return master_key(read_password(write_proof(secret, ledger_id, token)), token)


WITHOUT_TOKEN = [write_key()[:20] + bytes(8), read_key()[:20] + bytes(8)]
WITH_POSITIVE_TOKEN = [one[:20] + (77).to_bytes(8, "little") for one in (write_key(), read_key())]
WRONG = [
    master_key(b""),
    master_key(b"", TOKEN),
    write_key(2),
    read_key(2),
    write_key(secret=OTHER_SECRET),
    read_key(secret=OTHER_SECRET),
    *WITHOUT_TOKEN,
    *WITH_POSITIVE_TOKEN,
]
REFUSED = (Status.UNAUTHORIZED, Status.OTHER_LEDGER)


@pytest.fixture
def keyed(harness):
    """Ledger 1 has entries 0 to 4."""
    harness.start()
    harness.key = write_key()
    assert harness.add(1, 0, 4).status is Status.OK
    return harness


@pytest.mark.parametrize("end", ["", "stop", "kill", "checkpoint"])
def test_its_keys_open_it_and_no_other_key_does(keyed, end):
    if end == "checkpoint":
        keyed.bookie.storage.checkpoint()
    elif end:
        getattr(keyed, end)()
        keyed.start()
    found, ended = keyed.payloads(1, 0, 4, key=read_key())
    assert (len(found), ended.status) == (5, Status.OK)
    keyed.key = read_key()
    assert keyed.confirmed(1).status is Status.OK
    for key in (write_key(), *WRONG):
        batches, ended = keyed.read(1, 0, 4, key=key)
        assert not batches
        assert ended.status in REFUSED
        keyed.key = key
        refused = keyed.confirmed(1)
        assert (refused.status in REFUSED, refused.last_add_confirmed) == (True, -1)


@pytest.mark.parametrize("key", [read_key(), *WRONG])
def test_nobody_writes_to_it_without_the_key_for_that(keyed, key):
    assert keyed.add(1, 5, 9, key=key).status in REFUSED
    assert keyed.add(1, 5, 9, key=key, recovery=True).status in REFUSED
    assert keyed.fence(1, key=key).status in REFUSED
    assert keyed.confirm(1, 4, key=key).status in REFUSED
    assert keyed.force(1, key=key).status in REFUSED
    assert keyed.read(1, 0, 4, key=key, fence=True)[1].status in (*REFUSED, Status.UNKNOWN)
    keyed.key = read_key()
    assert not keyed.confirmed(1).is_fenced
    keyed.key = write_key()
    assert keyed.add(1, 5, 9).status is Status.OK
    assert keyed.confirm(1, 9).status is keyed.force(1).status is keyed.fence(1).status is Status.OK
    assert keyed.read(1, 0, 9, fence=True)[1].status is keyed.confirmed(1, fence=True).status is Status.OK
    assert keyed.add(1, 10, 14).status is Status.FENCED
    assert keyed.add(1, 10, 14, recovery=True).status is Status.OK


def test_requests_without_a_key_are_refused(keyed):
    """Forces and reads of the last add confirmed over Apache's wire have none, and no read has."""
    bookie = keyed.bookie
    asked = LastAddConfirmedRequest(BOOKIE_ID, 1, NO_KEY)
    assert bookie.read_last_add_confirmed(asked).status is Status.UNAUTHORIZED
    bookie.stage(ForceRequest(BOOKIE_ID, 1, NO_KEY), None)
    assert [reply.status for reply in keyed.sync()] == [Status.UNAUTHORIZED]
    whole = WholeReads(bookie.storage, bookie.admission, lambda batches: None)
    assert {one.status for one in whole.each(1, [0, 1, 4, -1, 99])} == {Status.UNAUTHORIZED}
    assert whole.last(1).status is Status.UNAUTHORIZED
    assert whole.run(1, 0, 5, 1 << 20) == (Status.UNAUTHORIZED, [])
    assert whole.availability(1) == (Status.UNAUTHORIZED, b"")
    keyed.add(2, 0, 4, key=master_key(b"", 5))
    assert whole.last(2).status is Status.OK, "a ledger without keys is read as before"


@pytest.mark.parametrize("key", [read_key(), *WRONG])
@pytest.mark.parametrize("first", ["add", "recovery", "fence"])
def test_who_comes_first_without_the_key_for_writes_leaves_what_the_ledger_disowns(harness, key, first):
    """Protocol rule 24: the bookie lets go of it, once it has looked at the metadata."""
    harness.start()
    if first == "fence":
        harness.fence(1, key=key)
    else:
        harness.add(1, 0, 4, key=key, recovery=first == "recovery")
    assert harness.add(1, 0, 4, key=write_key()).status in REFUSED, "nothing of his is taken for the ledger's"
    assert not harness.read(1, 0, 4, key=read_key())[0]
    stored, own = harness.bookie.storage.facts(1).master_key_hash, master_key_hash(read_key())
    assert is_foreign(stored, own) or stored[16:] not in (bytes(8), own[16:]), "or it is another creator's ledger"


def test_what_a_bookie_stores_is_neither_key(keyed):
    stored = keyed.bookie.storage.facts(1).master_key_hash
    for pretended in (stored + bytes(4), stored[:16] + bytes(4) + stored[16:]):
        assert keyed.read(1, 0, 4, key=pretended)[1].status in REFUSED
        assert keyed.add(1, 5, 9, key=pretended).status in REFUSED


def test_a_refusal_does_not_show_a_key(keyed):
    for key in WRONG:
        for reply in (keyed.add(1, 5, 9, key=key), keyed.read(1, 0, 4, key=key)[1]):
            assert not any(shown in reply.detail for shown in (key.hex(), repr(key), SECRET.decode()))
