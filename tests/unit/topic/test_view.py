"""A topic as it stands: positions along its ledgers, what is gone, what lies between two places."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.errors import ConfigError
from bk_spark.pulsar.positions import Position
from bk_spark.topic.places import number_of, windows_before
from bk_spark.topic.view import BEGINNING, TopicLedger, TopicView

VIEW = TopicView(
    "persistent://t/n/x", (TopicLedger(5, 99, 1000, True), TopicLedger(8, -1, 0, True), TopicLedger(9, 2, 30, False))
)
EMPTY = TopicView("persistent://t/n/x", ())


def test_a_topic_reaches_from_its_first_ledger_to_the_last_entry_that_can_be_read() -> None:
    assert (VIEW.first, VIEW.end, VIEW.entries) == (Position(5, 0), Position(9, 3), 103)


def test_a_topic_without_ledgers_begins_and_ends_before_everything() -> None:
    assert (EMPTY.first, EMPTY.end, EMPTY.entries) == (BEGINNING, BEGINNING, 0)
    assert list(EMPTY.stretches(BEGINNING, BEGINNING)) == []


def test_the_end_of_a_closed_ledger_is_the_start_of_the_next_one_that_holds_entries() -> None:
    assert VIEW.forward(Position(5, 100)) == Position(9, 0)
    assert VIEW.forward(Position(5, 99)) == Position(5, 99)
    assert VIEW.forward(Position(9, 3)) == Position(9, 3)


def test_a_position_in_a_ledger_that_is_not_listed_any_more_may_have_lost_entries() -> None:
    assert "trimmed ledger 4" in str(VIEW.missing_before(Position(4, 7)))
    assert VIEW.missing_before(Position(5, 0)) is None
    assert VIEW.missing_before(BEGINNING) is None
    assert "the first ledger that Pulsar lists is 5" in str(VIEW.missing_before(Position(4, 7)))
    assert "it has no ledgers" in str(EMPTY.missing_before(Position(4, 7)))


def test_an_end_that_was_seen_before_is_reached_though_bookies_tell_less_now() -> None:
    assert VIEW.reaching(Position(9, 5)).end == Position(9, 5)
    assert VIEW.reaching(Position(9, 2)) == VIEW
    found = [stretch for _, stretch in VIEW.reaching(Position(9, 5)).stretches(Position(9, 1), Position(9, 5))]
    assert [(one.first_entry_id, one.last_entry_id) for one in found] == [(1, 4)]


@pytest.mark.parametrize("ledger_id", [6, 10])
def test_a_position_in_a_ledger_of_another_topic_is_refused(ledger_id: int) -> None:
    with pytest.raises(ConfigError, match=f"topic 'persistent://t/n/x' has no ledger {ledger_id}: its ledgers are 5, 8, 9"):
        VIEW.check_listed("start", Position(ledger_id, 0))


@pytest.mark.parametrize("position", [Position(4, 7), Position(5, 3), Position(9, 700)])
def test_a_position_in_a_ledger_of_the_topic_or_before_its_first_one_is_none_of_another_topic(position: Position) -> None:
    VIEW.check_listed("start", position)


@st.composite
def views(draw: st.DrawFn) -> TopicView:
    sizes = draw(st.lists(st.integers(0, 4), max_size=5))
    gaps = draw(st.lists(st.integers(1, 3), min_size=len(sizes), max_size=len(sizes)))
    ids = [sum(gaps[: index + 1]) for index in range(len(sizes))]
    pairs = list(zip(ids, sizes, strict=True))
    return TopicView("t", tuple(TopicLedger(one, size - 1, size * 10, True) for one, size in pairs))


def entries_of(view: TopicView) -> list[Position]:
    return [Position(ledger.ledger_id, entry) for ledger in view.ledgers for entry in range(ledger.last_entry_id + 1)]


@given(views(), st.data())
def test_stretches_hold_exactly_the_entries_between_two_places(view: TopicView, data: st.DataObject) -> None:
    places = st.builds(Position, st.integers(0, 16), st.integers(0, 5))
    start, end = sorted((data.draw(places), data.draw(places)))
    found = [
        Position(one.ledger_id, entry)
        for _, one in view.stretches(start, end)
        for entry in range(one.first_entry_id, one.last_entry_id + 1)
    ]
    assert found == [one for one in entries_of(view) if start <= one < end]


@given(views())
def test_the_number_of_a_place_is_the_count_of_entries_before_it(view: TopicView) -> None:
    entries = entries_of(view)
    assert [view.place(number) for number in range(len(entries))] == entries
    assert [number_of(view, one) for one in entries] == list(range(len(entries)))
    assert number_of(view, view.end) == len(entries)


@given(views(), st.integers(1, 3), st.integers(0, 30), st.data())
def test_windows_go_back_over_the_nearest_entries_each_once(
    view: TopicView, first: int, most: int, data: st.DataObject
) -> None:
    entries = entries_of(view)
    end = data.draw(st.integers(0, len(entries)))
    windows = [
        [Position(one.ledger_id, entry) for one in window for entry in range(one.first_entry_id, one.last_entry_id + 1)]
        for window in windows_before(view, view.place(end), first, most)
    ]
    assert [one for window in reversed(windows) for one in window] == entries[max(0, end - most) : end]
    assert all(len(window) == first * 2**index for index, window in enumerate(windows[:-1]))
