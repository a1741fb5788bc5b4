"""Long reads are cut into stretches that begin at one slot after the other."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.client.ledger.read_stretches import stretch_starts
from bk_spark.client.protocol.stripe_reads import SlotChoice, Striping
from bk_spark.config import LedgerOptions
from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES
from bk_spark.metadata.ledger_metadata import LedgerMetadata, new_ledger

ENTRY_BYTES = 100


def ledger(size: int, quorum: int) -> LedgerMetadata:
    bookies = tuple(f"b{number}" for number in range(size))
    return new_ledger(
        7, LedgerOptions(ensemble_size=size, write_quorum=quorum, ack_quorum=quorum), bookies, created_ms=0, creator_token=1
    )


def closed(size: int, quorum: int, last: int = 999) -> LedgerMetadata:
    return ledger(size, quorum).closed_at(last, (last + 1) * ENTRY_BYTES)


def stretches(metadata: LedgerMetadata, first: int, last: int, stretch_bytes: int) -> list[tuple[int, int]]:
    starts = stretch_starts(metadata, first, last, stretch_bytes)
    return [(start, min(start + starts.step - 1, last)) for start in starts]


def bytes_of(count: int) -> int:
    return count * (ENTRY_BYTES + ENTRY_OVERHEAD_BYTES)


def test_a_part_has_as_many_entries_as_fit_and_begins_at_the_next_slot() -> None:
    assert stretches(closed(3, 3), 0, 99, bytes_of(40)) == [(0, 39), (40, 79), (80, 99)]
    assert stretches(closed(3, 3), 5, 84, bytes_of(42)) == [(5, 44), (45, 84)]


@pytest.mark.parametrize("metadata", [ledger(3, 3), closed(3, 2), closed(1, 1), closed(3, 3, 0), closed(3, 3, -1)])
def test_ledgers_that_are_open_striped_or_hardly_hold_anything_are_read_as_a_whole(metadata: LedgerMetadata) -> None:
    assert stretches(metadata, 10, 900, bytes_of(40)) == [(10, 900)]


def test_entries_larger_than_a_part_are_parts_themselves() -> None:
    assert stretches(closed(3, 3), 7, 9, 1) == [(7, 7), (8, 8), (9, 9)]


@given(size=st.integers(2, 5), first=st.integers(0, 999), count=st.integers(1, 1000), entries=st.integers(1, 300))
def test_parts_are_the_range_and_neighbours_are_read_from_different_slots(
    size: int, first: int, count: int, entries: int
) -> None:
    last = min(first + count - 1, 999)
    found = stretches(closed(size, size), first, last, bytes_of(entries))
    assert [entry_id for start, end in found for entry_id in range(start, end + 1)] == list(range(first, last + 1))
    assert all(end - start < entries for start, end in found)
    striping = Striping(size, size)
    choice = SlotChoice(7, striping, tuple(f"b{number}" for number in range(size)), frozenset())
    slots = [choice.best(list(range(size)), striping.residues, start) for start, _ in found]
    assert all((slot + 1) % size == following for slot, following in pairwise(slots))
