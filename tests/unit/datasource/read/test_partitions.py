"""Planning: every entry in exactly one partition, in log order, near the size that was asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bk_spark.client.ledger.stretches import Stretch, cut_at_fragments
from bk_spark.config import MIB, DigestType
from bk_spark.datasource.read.partitions import MAX_STRETCHES, plan
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState

lengths = st.integers(0, 1000)
logs = st.lists(st.tuples(st.integers(0, 50), lengths), max_size=30)


def log_of(ledgers: list[tuple[int, int]]) -> list[Stretch]:
    return [Stretch(index, 0, entries - 1, length if entries else 0) for index, (entries, length) in enumerate(ledgers)]


def entries_of(stretches: list[Stretch]) -> list[tuple[int, int]]:
    return [(s.ledger_id, entry) for s in stretches for entry in range(s.first_entry_id, s.last_entry_id + 1)]


@given(logs, st.integers(1, 400), st.integers(1, 20))
def test_every_entry_is_planned_once_in_log_order(ledgers: list[tuple[int, int]], target: int, least: int) -> None:
    planned = plan(log_of(ledgers), target, least)
    assert entries_of([stretch for partition in planned for stretch in partition]) == entries_of(log_of(ledgers))
    assert all(partition for partition in planned)


@given(logs, st.integers(1, 400))
def test_no_partition_of_several_stretches_is_above_the_target(ledgers: list[tuple[int, int]], target: int) -> None:
    for partition in plan(log_of(ledgers), target, 1):
        assert len(partition) == 1 or sum(stretch.length for stretch in partition) <= target


def test_a_large_ledger_is_split_evenly_by_entries() -> None:
    planned = plan([Stretch(7, 0, 299, 300 * MIB)], 128 * MIB, 1)
    assert [(p[0].first_entry_id, p[0].last_entry_id) for p in planned] == [(0, 99), (100, 199), (200, 299)]


def test_a_single_entry_above_the_target_is_one_partition() -> None:
    assert plan([Stretch(7, 0, 0, 16 * MIB)], MIB, 1) == [(Stretch(7, 0, 0, 16 * MIB),)]


def test_a_thousand_tiny_ledgers_become_few_partitions() -> None:
    planned = plan([Stretch(index, 0, 0, 900) for index in range(1000)], 128 * MIB, 1)
    assert len(planned) == 4
    assert max(map(len, planned)) == MAX_STRETCHES


def test_min_partitions_makes_them_smaller_as_far_as_entries_allow() -> None:
    assert len(plan([Stretch(7, 0, 99, 10_000)], 128 * MIB, 8)) == 8
    assert len(plan([Stretch(7, 0, 2, 10_000)], 128 * MIB, 8)) == 3


def test_an_empty_log_has_no_partition() -> None:
    assert plan([], MIB, 4) == []
    assert plan([Stretch(7, 0, -1, 0)], MIB, 4) == []


def test_a_stretch_is_cut_where_the_ensemble_changes() -> None:
    fragments = (Fragment(0, ("a", "b")), Fragment(30, ("a", "c")))
    metadata = LedgerMetadata(7, 2, 2, 2, DigestType.CRC32C, b"", fragments, LedgerState.CLOSED, 99, 1000)
    assert cut_at_fragments(Stretch(7, 0, 99, 1000), metadata) == [Stretch(7, 0, 29, 300), Stretch(7, 30, 99, 700)]
    assert cut_at_fragments(Stretch(7, 20, 39, 200), metadata) == [Stretch(7, 20, 29, 100), Stretch(7, 30, 39, 100)]
    assert cut_at_fragments(Stretch(7, 40, 49, 100), metadata) == [Stretch(7, 40, 49, 100)]
