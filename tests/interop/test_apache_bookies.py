"""What only Apache's bookies do."""

from __future__ import annotations

import pytest

from benchmarks.peers.bookkeeper_cluster import BookKeeperCluster
from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import APACHE_FRAME_BYTES
from bk_spark.errors import EntryTooLargeError
from bk_spark.wire.apache.frame_limits import most_payload_bytes
from tests.interop.apache import read_all

COUNT = 700

pytestmark = pytest.mark.timeout(1200)

MOST_PAYLOAD_BYTES = most_payload_bytes(APACHE_FRAME_BYTES)


def test_an_entry_that_apaches_bookies_do_not_take_is_refused_with_its_size_and_theirs(client: BookKeeper) -> None:
    refused = rf"{MOST_PAYLOAD_BYTES + 1} bytes, the maximum is {MOST_PAYLOAD_BYTES}"
    with client.create_ledger(3, 3, 2) as writer:
        for append in (writer.append, lambda payload: writer.append_batch([b"", payload])):
            with pytest.raises(EntryTooLargeError, match=refused):
                append(bytes(MOST_PAYLOAD_BYTES + 1))
        assert writer.append(b"the writer goes on") == 0


def test_bookies_say_what_they_are_and_how_much_space_they_have(client: BookKeeper) -> None:
    bookies = client.list_bookies()
    assert [bookie.address.protocol for bookie in bookies] == ["bookie-rpc"] * 3
    for bookie in bookies:
        described = client.describe_bookie(bookie.bookie_id)
        assert described is not None
        assert 0 < described.free_bytes <= described.total_bytes


def test_copies_that_apache_makes_of_a_lost_bookie_are_read(apache: BookKeeperCluster, client: BookKeeper) -> None:
    """They have another last add confirmed, above their ids, and another digest. All copies are replaced here."""
    payloads = [b"%d" % one for one in range(COUNT)]
    with client.create_ledger(2, 2, 2) as writer:
        writer.append_batch(payloads)
    for bookie_id in client.ledger_metadata(writer.ledger_id).fragments[0].ensemble:
        apache.shell("recover", "-force", "-ledger", writer.ledger_id, bookie_id)
        assert bookie_id not in client.ledger_metadata(writer.ledger_id).fragments[0].ensemble
    with client.open_ledger(writer.ledger_id) as reader:
        assert read_all(reader) == payloads
