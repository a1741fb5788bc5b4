"""Which ledgers a compaction merges. Ref: docs/rules.md, log rule 4 (a replacement names one stretch)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.errors import ConfigError
from bk_spark.log.cleanup.compaction_plan import MAX_GROUP_LEDGERS, TARGET_BYTES, plan_compaction
from bk_spark.log.stored.values import CommittedLedger, Totals


def ledgers(*lengths):
    return [CommittedLedger(100 + place, 0, length, 1) for place, length in enumerate(lengths)]


def lengths_of(stretches):
    return [[[one.length for one in group.ledgers] for group in stretch.groups] for stretch in stretches]


def test_small_neighbours_are_merged_up_to_the_target():
    assert lengths_of(plan_compaction(ledgers(20, 30, 40, 30, 80, 10, 10, 60), 100)) == [[[20, 30, 40]], [[10, 10]]]


def test_groups_that_touch_are_one_stretch_and_one_commit():
    [stretch] = plan_compaction(ledgers(40, 40, 40, 40, 40), 100)
    assert lengths_of([stretch]) == [[[40, 40], [40, 40]]]
    assert stretch.ledger_ids == (100, 101, 102, 103)
    assert [group.total for group in stretch.groups] == [Totals(2, 2, 80)] * 2


def test_only_neighbours_of_one_lane_are_merged():
    listed = [replace(one, lane=lane) for one, lane in zip(ledgers(*[10] * 7), (0, 0, 1, 1, 2, 0, 0), strict=True)]
    first, second = plan_compaction(listed, 100)
    assert [(group.lane, len(group.ledgers)) for group in (*first.groups, *second.groups)] == [(0, 2), (1, 2), (0, 2)]
    assert (first.ledger_ids, second.ledger_ids) == ((100, 101, 102, 103), (105, 106))


def test_what_is_half_of_the_target_or_more_stays():
    assert plan_compaction(ledgers(50, 49, 50), 100) == []


def test_ledgers_without_keys_are_rewritten_whatever_their_size_unless_they_are_of_a_span():
    listed = ledgers(80, 90, 10, 20, 70, 30)
    without = frozenset({listed[1].ledger_id, listed[2].ledger_id, listed[5].ledger_id})
    assert lengths_of(plan_compaction(listed, 100, without)) == [[[90], [10, 20]], [[30]]]
    span = [replace(listed[0], span=100), *listed[1:]]
    assert plan_compaction(span, 100, frozenset({listed[0].ledger_id})) == plan_compaction(listed, 100)


def test_a_log_of_few_large_ledgers_has_nothing_to_do():
    assert plan_compaction(ledgers()) == []
    assert plan_compaction(ledgers(TARGET_BYTES, 10, TARGET_BYTES)) == []


def test_empty_ledgers_are_merged_too():
    assert lengths_of(plan_compaction(ledgers(0, 0, 10), 100)) == [[[0, 0, 10]]]


def test_ten_thousand_tiny_ledgers_become_at_most_ten_in_one_commit():
    [stretch] = plan_compaction(ledgers(*[1000] * 10_000))
    assert len(stretch.groups) <= 10
    assert len(stretch.ledger_ids) == 10_000
    assert all(len(group.ledgers) <= MAX_GROUP_LEDGERS for group in stretch.groups)


@pytest.mark.parametrize("target", [0, -1, 1.5, True])
def test_a_target_that_is_no_number_of_bytes_is_refused(target):
    with pytest.raises(ConfigError, match="target_bytes"):
        plan_compaction([], target)


@given(st.lists(st.integers(0, 120), max_size=60), st.integers(1, 150))
def test_every_stretch_is_one_stretch_of_the_log_and_every_group_is_worth_its_task(lengths, target):
    listed = ledgers(*lengths)
    ids = [one.ledger_id for one in listed]
    behind = 0
    for stretch in plan_compaction(listed, target):
        start = ids.index(stretch.ledger_ids[0])
        assert start > behind or behind == 0
        behind = start + len(stretch.ledger_ids)
        assert tuple(ids[start:behind]) == stretch.ledger_ids
        for group in stretch.groups:
            assert len(group.ledgers) > 1
            assert group.total.length <= target
            assert all(2 * one.length < target for one in group.ledgers)


@given(st.lists(st.integers(0, 120), max_size=60), st.integers(2, 150))
def test_compacting_again_and_again_comes_to_an_end(lengths, target):
    for _ in range(8):
        plan = plan_compaction(ledgers(*lengths), target)
        if not plan:
            return
        merged = {group.ledgers[0].ledger_id: group.total.length for stretch in plan for group in stretch.groups}
        gone = {one.ledger_id for stretch in plan for group in stretch.groups for one in group.ledgers}
        listed = ledgers(*lengths)
        lengths = [
            merged.get(one.ledger_id, one.length) for one in listed if one.ledger_id in merged or one.ledger_id not in gone
        ]
    pytest.fail("it never ends")
