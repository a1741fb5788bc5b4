"""Ledgers stand where Apache BookKeeper's three ledger managers have them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.metadata.ledger_layout import MAX_LEDGER_ID, LedgerLayout

PATHS = {
    LedgerLayout.FLAT: {0: "L0000000000", 12345: "L0000012345", 9_999_999_999: "L9999999999"},
    LedgerLayout.HIERARCHICAL: {
        0: "00/0000/L0000",
        1: "00/0000/L0001",
        12345: "00/0001/L2345",
        1234567890: "12/3456/L7890",
        2**31 - 2: "21/4748/L3646",
        2**31 - 1: "000/0000/0021/4748/L3647",
        2**32: "000/0000/0042/9496/L7296",
        MAX_LEDGER_ID: "922/3372/0368/5477/L5807",
    },
    LedgerLayout.LONG_HIERARCHICAL: {
        0: "000/0000/0000/0000/L0000",
        1: "000/0000/0000/0000/L0001",
        2**31: "000/0000/0021/4748/L3648",
        MAX_LEDGER_ID: "922/3372/0368/5477/L5807",
    },
}


@pytest.mark.parametrize("layout", LedgerLayout)
def test_a_ledger_stands_where_apaches_ledger_manager_has_it(layout: LedgerLayout) -> None:
    """The hierarchical one is two: from 2**31 - 1 on, where sequential znodes end, ids take the long path."""
    assert {ledger_id: layout.path(ledger_id) for ledger_id in PATHS[layout]} == PATHS[layout]
    assert layout.largest_id == max(PATHS[layout])


@pytest.mark.parametrize("layout", LedgerLayout)
@given(st.data())
def test_no_two_ledgers_share_a_path_and_the_path_spells_the_id(layout: LedgerLayout, data: st.DataObject) -> None:
    ledger_id = data.draw(st.integers(0, layout.largest_id))
    path = layout.path(ledger_id)
    assert int(path.replace("/", "").replace("L", "")) == ledger_id
    assert path.rsplit("/", 1)[-1].startswith("L")
    (cut,) = [cut for cut in layout.cuts if cut.first <= ledger_id <= cut.last]
    assert all(cut.names(level).fullmatch(name) for level, name in enumerate(path.split("/")))


@pytest.mark.parametrize("layout", LedgerLayout)
def test_what_else_stands_at_the_root_is_no_ledger(layout: LedgerLayout) -> None:
    others = [
        "LAYOUT",
        "INSTANCEID",
        "idgen",
        "idgen-long",
        "available",
        "cookies",
        "bk_spark",
        "underreplication",
        "0",
        "ID-0000000007",
    ]
    for cut in layout.cuts:
        assert not any(cut.names(0).fullmatch(name) for name in [*others, "0000", "L000000000", "L00000000000", "٠٠"])


@pytest.mark.parametrize(
    ("layout", "factory"),
    [
        (LedgerLayout.FLAT, "FlatLedgerManagerFactory"),
        (LedgerLayout.HIERARCHICAL, "HierarchicalLedgerManagerFactory"),
        (LedgerLayout.LONG_HIERARCHICAL, "LongHierarchicalLedgerManagerFactory"),
    ],
)
def test_the_stored_value_is_the_one_of_apaches_tools(layout: LedgerLayout, factory: str) -> None:
    """Format version 2, a line feed, the factory's class, a colon, its version 1; no line feed at the end."""
    value = f"2\norg.apache.bookkeeper.meta.{factory}:1".encode()
    assert layout.stored == value
    assert LedgerLayout.of_stored(value) is layout
    assert LedgerLayout.of_stored(value + b"\n") is layout


@pytest.mark.parametrize(
    "value", [b"", b"1\nflat:1", b"2\norg.apache.bookkeeper.meta.LegacyHierarchicalLedgerManagerFactory:1"]
)
def test_another_stored_value_is_no_layout(value: bytes) -> None:
    assert LedgerLayout.of_stored(value) is None
