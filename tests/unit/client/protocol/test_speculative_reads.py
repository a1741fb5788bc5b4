"""A silent bookie is not waited for alone: another one is asked beside it. Ref: situation 44."""

from __future__ import annotations

import dataclasses

import pytest

from bk_spark.client.protocol.read_entries import ReadEntries
from bk_spark.client.protocol.state_machine import SendRead, Start, Tick
from bk_spark.errors import BookieUnavailableError, NoSuchEntryError
from bk_spark.wire.messages import Status
from tests.unit.client.protocol.reader_model import (
    LIMITS,
    SILENT,
    Late,
    Reader,
    Replica,
    damaged_from,
    ending_before,
    failing,
    healthy,
    ledger,
    reader_of,
    small_answers,
)

SPECULATIVE_MS = LIMITS.speculative_ms
TIMEOUT_MS = LIMITS.timeout_ms


def _reader(first: Replica | Late, second: Replica | Late, third: Replica | Late = SILENT) -> Reader:
    """One whose bookies are asked in this order for a range that starts at entry 0."""
    machine = ReadEntries(ledger(), 0, 9, LIMITS)
    order = []
    machine.handle(Start(), 0)
    for now_ms in (0, SPECULATIVE_MS, TIMEOUT_MS):
        machine.handle(Tick(), now_ms)
        order += [c.bookie_id for c in machine.take_commands() if isinstance(c, SendRead)]
    assert sorted(order) == ["b0", "b1", "b2"]
    return Reader(ledger(), dict(zip(order, (first, second, third), strict=True)))


def test_a_slow_bookie_is_overtaken_by_a_second_one_and_there_is_one_result() -> None:
    """Situation 44."""
    reader = _reader(Late(900, healthy), healthy)
    assert reader.read(0, 9) == list(range(10))
    assert reader.now_ms == SPECULATIVE_MS
    assert len(reader.asked) == 2
    assert reader.cancelled == reader.asked, "the slow one, and the other one once its last entry is there"


def test_a_bookie_that_answers_before_the_speculative_one_goes_on_and_that_one_is_cancelled() -> None:
    reader = _reader(Late(500, small_answers), Late(300, small_answers))
    assert reader.read(0, 40) == list(range(41))
    first, second = reader.asked[:2]
    assert first != second
    assert reader.cancelled[0] == second
    assert reader.asked[2] == first


def test_after_a_race_the_read_goes_on_with_the_bookie_that_won_it() -> None:
    reader = _reader(SILENT, small_answers)
    assert reader.read(0, 40) == list(range(41))
    assert set(reader.asked[1:]) == {reader.asked[1]}
    assert reader.now_ms == SPECULATIVE_MS


def test_a_bookie_that_lost_a_race_is_asked_last_for_the_rest_of_the_read() -> None:
    """The two others lack every other entry: each of these holes would be a race against the silent one again."""

    def lacking(remainder: int) -> Replica:
        return lambda request: ending_before(request.first + (request.first % 2 != remainder), Status.NO_SUCH_ENTRY)(request)

    reader = _reader(SILENT, lacking(0), lacking(1))
    assert reader.read(0, 40) == list(range(41))
    assert reader.now_ms <= 2 * SPECULATIVE_MS


def test_late_answers_of_the_loser_deliver_nothing_twice() -> None:
    """Both bookies send everything, in parts; the loser's parts arrive between the winner's."""
    reader = _reader(Late(500, small_answers), Late(100, small_answers))
    assert reader.read(0, 40) == list(range(41))


def test_no_second_bookie_is_asked_while_the_first_one_keeps_sending() -> None:
    reader = _reader(Late(SPECULATIVE_MS - 1, small_answers), healthy)
    assert reader.read(0, 40) == list(range(41))
    assert len(set(reader.asked)) == 1


def test_at_most_one_speculative_request_is_under_way_for_a_stripe() -> None:
    reader = _reader(SILENT, SILENT, healthy)
    assert reader.read(0, 9) == list(range(10))
    assert len(reader.asked) == 3
    assert reader.now_ms == TIMEOUT_MS


def test_a_bookie_to_avoid_is_not_the_speculative_one_while_there_is_another() -> None:
    reader = _reader(SILENT, healthy, healthy)
    second = next(b for b, replica in reader.replicas.items() if replica is healthy)
    assert reader.read(0, 9, avoid=frozenset({second})) == list(range(10))
    assert second not in reader.asked


def test_a_speculative_bookie_that_fails_leaves_the_first_one_its_time() -> None:
    for second in (failing(Status.UNKNOWN), failing(Status.NO_SUCH_LEDGER), damaged_from(0)):
        reader = _reader(Late(900, healthy), second, second)
        assert reader.read(0, 9) == list(range(10))
        assert reader.now_ms == 900


def test_a_first_bookie_that_fails_leaves_the_speculative_one_its_time() -> None:
    reader = _reader(Late(500, failing(Status.UNKNOWN)), Late(300, healthy), failing(Status.UNKNOWN))
    assert reader.read(0, 9) == list(range(10))
    assert reader.now_ms == SPECULATIVE_MS + 300


def test_failures_of_both_bookies_of_a_race_count_for_the_verdict() -> None:
    missing = failing(Status.NO_SUCH_ENTRY)
    with pytest.raises(NoSuchEntryError, match="no entry 0"):
        _reader(Late(900, missing), Late(100, missing), missing).read(0, 9)
    with pytest.raises(BookieUnavailableError):
        _reader(SILENT, missing, missing).read(0, 9)


def test_the_loser_may_be_asked_again_when_the_winner_fails_later() -> None:
    reader = _reader(Late(900, healthy), ending_before(5, Status.IO_ERROR), failing(Status.UNKNOWN))
    assert reader.read(0, 9) == list(range(10))


def test_without_another_replica_a_silent_bookie_only_has_its_time_out() -> None:
    reader = Reader(ledger(1, 1, 1), {"b0": Late(900, healthy)})
    assert reader.read(0, 9) == list(range(10))
    assert reader.asked == ["b0"]


def test_a_speculative_time_no_less_than_the_time_out_means_never() -> None:
    limits = dataclasses.replace(LIMITS, speculative_ms=TIMEOUT_MS)
    reader = _reader(SILENT, SILENT, healthy)
    assert reader.read(0, 9, limits=limits) == list(range(10))
    assert reader.now_ms == 2 * TIMEOUT_MS


@pytest.mark.parametrize(("e", "w"), [(3, 2), (4, 2), (5, 3), (6, 3)])
def test_with_striping_a_silent_bookie_is_overtaken_by_those_that_hold_its_entries_together(e: int, w: int) -> None:
    """No other slot holds all that the silent one was asked for: as many races are run as it takes."""
    for slot in range(e):
        replicas: dict[str, Replica | Late] = {f"b{s}": small_answers for s in range(e)}
        replicas[f"b{slot}"] = SILENT
        reader = Reader(ledger(e, w, 1), replicas)
        assert reader.read(0, 40) == list(range(41))
        assert reader.now_ms < TIMEOUT_MS
        assert reader.asked.count(f"b{slot}") == reader.cancelled.count(f"b{slot}") <= 1


@pytest.mark.parametrize(("e", "w"), [(3, 2), (4, 2), (5, 3)])
def test_with_striping_slow_bookies_deliver_every_entry_once_and_in_order(e: int, w: int) -> None:
    for slot in range(e):
        replicas: dict[str, Replica | Late] = {f"b{s}": Late(100 + 170 * s, small_answers) for s in range(e)}
        replicas[f"b{slot}"] = Late(700, healthy)
        assert Reader(ledger(e, w, 1), replicas).read(0, 40) == list(range(41))


def test_a_last_entry_that_only_the_silent_bookie_holds_is_still_waited_for() -> None:
    """Slot 1 holds entries 0 and 1 and is late; slot 0, which overtakes it, holds entry 0 alone."""
    reader = reader_of(healthy, Late(900, healthy), SILENT, e=3, w=2)
    assert reader.read(0, 1) == [0, 1]
    assert reader.now_ms == 900
