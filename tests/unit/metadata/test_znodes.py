"""Paths in the metadata store, as Apache BookKeeper's tools expect them."""

from __future__ import annotations

from bk_spark.metadata.ledger_layout import LedgerLayout
from bk_spark.metadata.znodes import Znodes

ZNODES = Znodes("/ledgers")
FLAT = Znodes("/ledgers", LedgerLayout.FLAT)


def test_ledgers_stand_below_the_root_as_the_layout_says() -> None:
    assert ZNODES.ledger(12345) == "/ledgers/00/0001/L2345"
    assert FLAT.ledger(12345) == "/ledgers/L0000012345"


def test_ids_are_taken_where_apache_takes_them() -> None:
    """ZkLedgerIdGenerator right below the root in a flat cluster; LongZkLedgerIdGenerator's buckets have ten digits."""
    assert ZNODES.id_prefix == "/ledgers/idgen/ID-"
    assert FLAT.id_prefix == "/ledgers/ID-"
    assert ZNODES.id_bucket(1) == "/ledgers/idgen-long/HOB-0000000001"


def test_registrations_and_cookies_stand_where_apache_has_them() -> None:
    assert ZNODES.registration("b:1-x") == "/ledgers/available/b:1-x"
    assert ZNODES.registration("b:1-x", read_only=True) == "/ledgers/available/readonly/b:1-x"
    assert ZNODES.cookie("b:1-x") == "/ledgers/cookies/b:1-x"
    assert (ZNODES.layout_path, ZNODES.instance_id) == ("/ledgers/LAYOUT", "/ledgers/INSTANCEID")
    assert FLAT.layout_value == LedgerLayout.FLAT.stored


def test_marks_and_locks_of_re_replication_stand_where_apache_has_them() -> None:
    assert ZNODES.under_replicated(0xABCD1) == "/ledgers/underreplication/ledgers/0000/0000/000a/bcd1/urL0000703697"
    assert ZNODES.under_replicated(2**62) == "/ledgers/underreplication/ledgers/4000/0000/0000/0000/urL4611686018427387904"
    assert ZNODES.under_replicated_lock(17) == "/ledgers/underreplication/locks/urL0000000017"


def test_logs_stand_below_a_directory_of_their_own() -> None:
    assert ZNODES.log_name("orders") == "/ledgers/bk_spark/logs/names/orders"
    assert ZNODES.log("u1") == "/ledgers/bk_spark/logs/data/u1"
