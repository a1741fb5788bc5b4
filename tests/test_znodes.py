"""Paths in the metadata store, as Apache BookKeeper's tools expect them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.znodes import (
    LAYOUT_VALUE,
    MAX_LEDGER_ID,
    Znodes,
    is_ledger_directory,
    is_ledger_subdirectory,
    ledger_id_of,
    sequence_of,
)

ZNODES = Znodes("/ledgers")


@pytest.mark.parametrize(
    ("ledger_id", "path"),
    [
        (0, "/ledgers/00/0000/L0000"),
        (1, "/ledgers/00/0000/L0001"),
        (12345, "/ledgers/00/0001/L2345"),
        (1234567890, "/ledgers/12/3456/L7890"),
        (MAX_LEDGER_ID, "/ledgers/99/9999/L9999"),
    ],
)
def test_a_ledger_id_is_cut_2_4_4_as_in_apaches_hierarchical_layout(ledger_id: int, path: str) -> None:
    assert ZNODES.ledger(ledger_id) == path


@given(st.integers(0, MAX_LEDGER_ID))
def test_a_ledgers_path_gives_its_id_back(ledger_id: int) -> None:
    directory, subdirectory, name = ZNODES.ledger(ledger_id).split("/")[2:]
    assert is_ledger_directory(directory)
    assert is_ledger_subdirectory(subdirectory)
    assert ledger_id_of(directory, subdirectory, name) == ledger_id


def test_the_other_families_at_the_root_are_no_ledgers() -> None:
    families = ["LAYOUT", "INSTANCEID", "idgen", "available", "cookies", "bk_spark", "underreplication", "000", "0"]
    assert not any(is_ledger_directory(name) for name in families)
    assert not is_ledger_subdirectory("00000")
    assert ledger_id_of("00", "0000", "idgen") is None
    assert ledger_id_of("00", "0000", "L00000") is None


def test_registrations_and_cookies_stand_where_apache_has_them() -> None:
    assert ZNODES.registration("b:1-x") == "/ledgers/available/b:1-x"
    assert ZNODES.registration("b:1-x", read_only=True) == "/ledgers/available/readonly/b:1-x"
    assert ZNODES.cookie("b:1-x") == "/ledgers/cookies/b:1-x"
    assert (ZNODES.layout, ZNODES.instance_id, ZNODES.id_prefix) == (
        "/ledgers/LAYOUT",
        "/ledgers/INSTANCEID",
        "/ledgers/idgen/ID-",
    )
    assert LAYOUT_VALUE.split(b"\n")[0] == b"2"


def test_marks_and_locks_of_re_replication_stand_where_apache_has_them() -> None:
    assert ZNODES.under_replicated(0xABCD1) == "/ledgers/underreplication/ledgers/0000/0000/000a/bcd1/urL0000703697"
    assert ZNODES.under_replicated_lock(17) == "/ledgers/underreplication/locks/urL0000000017"


def test_logs_stand_below_a_directory_of_their_own() -> None:
    assert ZNODES.log_name("orders") == "/ledgers/bk_spark/logs/names/orders"
    assert ZNODES.log("u1") == "/ledgers/bk_spark/logs/data/u1"


def test_the_number_of_a_sequential_path_is_its_last_ten_digits() -> None:
    assert sequence_of("/ledgers/idgen/ID-0000000042") == 42
