"""A bookie begins ledgers only under ids that were given out. Ref: docs/rules.md, protocol rule 64."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from bk_spark.bookie.server import new_ledgers
from bk_spark.bookie.server.new_ledgers import UNCHECKED_IDS, NewLedgers
from bk_spark.errors import MetadataUnavailableError, StorageError

HELD = 500


class Store:
    """Has given out the ids below ``next_id``."""

    def __init__(self, next_id: int) -> None:
        self.next_id = next_id
        self.looks = self.quick_looks = self.seen_quickly = 0
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.problem: Exception | None = None
        self.chosen: list[int] = []
        self.ledgers: set[int] = set()
        self.new_ledgers = NewLedgers(self, self.holds, self.chosen.append)

    def next_ledger_id(self) -> int:
        self.looks += 1
        seen = self.next_id
        assert self.may_answer.wait(20)
        if self.problem is not None:
            raise self.problem
        return seen

    def next_ledger_id_from(self, known: int) -> int:
        """Lags: some that were given out are missing."""
        self.quick_looks += 1
        return max(known, self.seen_quickly)

    def has_ledger(self, ledger_id: int) -> bool:
        return ledger_id in self.ledgers

    def holds(self, ledger_id: int) -> bool:
        if ledger_id == HELD + 1:
            raise StorageError("looking up", "damaged")
        return ledger_id == HELD


async def _waits_for(looks: int, store: Store) -> None:
    async with asyncio.timeout(20):
        while store.looks < looks:
            await asyncio.sleep(0)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def test_an_id_that_was_not_given_out_is_refused_until_it_is() -> None:
    store = Store(7)

    async def work() -> None:
        assert await store.new_ledgers.refusal(6) == ""
        assert "ledger id 7 was not given out yet" in await store.new_ledgers.refusal(7)
        store.next_id = 8
        assert await store.new_ledgers.refusal(7) == ""

    run(work())


def test_what_is_known_to_be_given_out_costs_no_look() -> None:
    store = Store(7)

    async def work() -> None:
        for ledger_id in (6, 6, 5, 0, 6):
            assert await store.new_ledgers.refusal(ledger_id) == ""

    run(work())
    assert store.looks == 1


@pytest.mark.parametrize("ledger_id", [HELD, HELD + 1])
def test_what_this_bookie_has_or_cannot_look_up_is_not_refused(ledger_id: int) -> None:
    store = Store(7)
    assert run(store.new_ledgers.refusal(ledger_id)) == ""


def test_a_quick_look_is_enough_if_it_shows_that_the_id_was_given_out() -> None:
    store = Store(9)
    store.seen_quickly = 8

    async def work() -> None:
        assert await store.new_ledgers.refusal(7) == ""
        assert store.looks == 0
        assert await store.new_ledgers.refusal(8) == ""

    run(work())
    assert (store.quick_looks, store.looks) == (2, 1)


def test_requests_that_come_during_a_look_share_the_next_one_and_not_that_which_began_before_them() -> None:
    store = Store(7)

    async def work() -> list[str]:
        store.may_answer.clear()
        first = asyncio.create_task(store.new_ledgers.refusal(7))
        await _waits_for(1, store)
        store.next_id = 20  # given out after the first look
        others = [asyncio.create_task(store.new_ledgers.refusal(ledger_id)) for ledger_id in range(10, 30)]
        await asyncio.sleep(0)  # each waits for its look by now
        store.may_answer.set()
        await first
        return [await one for one in others]

    assert [one == "" for one in run(work())] == [True] * 10 + [False] * 10
    assert store.looks == 2


def test_while_the_store_does_not_answer_ids_count_as_given_out_and_it_is_not_asked_again_at_once() -> None:
    store = Store(7)
    store.problem = MetadataUnavailableError("memory://", "no answer")

    async def work() -> None:
        for ledger_id in (7, 8, 9):
            assert await store.new_ledgers.refusal(ledger_id) == ""

    run(work())
    assert store.looks == 1


def test_an_id_far_above_the_counter_is_refused_even_then() -> None:
    store = Store(7)
    store.new_ledgers.note(7)
    store.problem = MetadataUnavailableError("memory://", "no answer")

    async def work() -> None:
        assert await store.new_ledgers.refusal(7 + UNCHECKED_IDS - 1) == ""
        assert await store.new_ledgers.refusal(7 + UNCHECKED_IDS) != ""
        assert await store.new_ledgers.refusal(HELD + UNCHECKED_IDS) != ""

    run(work())
    assert store.looks == 1


def test_a_store_that_hangs_holds_no_request_up_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_ledgers, "LOOK_TIMEOUT_S", 0.02)
    store = Store(7)
    store.may_answer.clear()

    async def work() -> None:
        assert await store.new_ledgers.refusal(7) == ""
        assert await store.new_ledgers.refusal(8) == ""
        store.may_answer.set()

    run(work())
    assert store.looks == 1


def test_an_error_that_nobody_expects_counts_as_no_answer() -> None:
    store = Store(7)
    store.problem = ValueError("no number")
    assert run(store.new_ledgers.refusal(7)) == ""
    assert run(store.new_ledgers.refusal(8)) == ""


def test_an_older_answer_that_somebody_else_notes_last_does_not_refuse_what_a_look_has_found() -> None:
    store = Store(8)
    look = store.new_ledgers._next_look

    async def overtaken() -> int:
        found = await look()
        store.new_ledgers.note(7)  # before whoever waits for the look goes on
        return found

    store.new_ledgers._next_look = overtaken  # type: ignore[method-assign]
    assert run(store.new_ledgers.refusal(7)) == ""


def test_what_another_look_found_counts_and_the_counter_may_have_gone_back() -> None:
    store = Store(7)
    store.new_ledgers.note(9)
    assert run(store.new_ledgers.refusal(8)) == ""
    assert store.looks == 0
    store.new_ledgers.note(7)
    assert run(store.new_ledgers.refusal(8)) != ""


def test_after_a_while_the_store_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_ledgers, "UNCHECKED_S", 0.05)
    store = Store(7)
    store.problem = MetadataUnavailableError("memory://", "no answer")

    async def work() -> None:
        assert await store.new_ledgers.refusal(7) == ""
        store.problem = None
        async with asyncio.timeout(20):
            while not await store.new_ledgers.refusal(7):
                await asyncio.sleep(0.001)

    run(work())
    assert store.looks == 2


def test_an_id_that_its_ledgers_creator_chose_is_taken_and_asked_for_once() -> None:
    store = Store(7)
    store.ledgers = {1 << 40}

    async def ask() -> list[str]:
        return [await store.new_ledgers.refusal(1 << 40), await store.new_ledgers.refusal(1 << 41)]

    taken, refused = run(ask())
    assert (taken, store.chosen) == ("", [1 << 40])
    assert "was not given out yet" in refused
    assert store.new_ledgers.knows(1 << 40)
    assert not store.new_ledgers.knows(1 << 41)
