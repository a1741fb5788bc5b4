"""Ref: docs/rules.md, protocol rule 59, situation 46."""

from __future__ import annotations

import asyncio

import pytest

from bk_spark.bookie.server import long_poll
from bk_spark.bookie.server.long_poll import LongPolls
from bk_spark.wire.messages import MAX_WAIT_MS, LastAddConfirmedReply, LastAddConfirmedRequest, Status

LEDGER = 1
DEADLINE_S = 60.0


class Asked:
    """What the bookie would say; tests change it and wake the polls."""

    def __init__(self, last_add_confirmed: int = 4) -> None:
        self.reply = LastAddConfirmedReply(Status.OK, last_add_confirmed)
        self.polls = LongPolls()
        self.count = 0

    async def ask(self) -> LastAddConfirmedReply:
        self.count += 1
        return self.reply

    def poll(self, *, beyond: int = 4, wait_ms: int = MAX_WAIT_MS) -> asyncio.Task[LastAddConfirmedReply]:
        request = LastAddConfirmedRequest("bookie-1", LEDGER, b"", beyond=beyond, wait_ms=wait_ms)
        return asyncio.get_running_loop().create_task(self.polls.answer(request, self.ask))

    async def settled(self) -> None:
        """Let all tasks run until they wait."""
        for _ in range(10):
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    "news",
    [
        LastAddConfirmedReply(Status.OK, 5),
        LastAddConfirmedReply(Status.OK, 4, is_fenced=True),
        LastAddConfirmedReply(Status.IO_ERROR, -1),
        LastAddConfirmedReply(Status.UNKNOWN, -1),
    ],
)
def test_a_poll_waits_for_news_of_its_ledger(news):
    async def run():
        asked = Asked()
        poll = asked.poll()
        await asked.settled()
        asked.polls.wake([LEDGER])
        await asked.settled()
        assert not poll.done()
        asked.reply = news
        asked.polls.wake([LEDGER + 1])
        await asked.settled()
        assert not poll.done()
        asked.polls.wake([LEDGER + 1, LEDGER])
        assert await poll == news
        assert asked.count == 3
        assert asked.polls.count == 0

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))


@pytest.mark.parametrize(("beyond", "wait_ms"), [(3, MAX_WAIT_MS), (4, 0), (9, 0)])
def test_news_and_requests_that_do_not_wait_are_answered_at_once(beyond, wait_ms):
    async def run():
        asked = Asked()
        assert await asked.poll(beyond=beyond, wait_ms=wait_ms) == asked.reply

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))


def test_a_poll_is_answered_without_news_when_its_time_is_up():
    async def run():
        asked = Asked()
        assert await asked.poll(wait_ms=1) == asked.reply
        assert asked.polls.count == 0

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))


def test_a_poll_waits_for_a_ledger_that_has_not_come_yet():
    async def run():
        asked = Asked()
        asked.reply = LastAddConfirmedReply(Status.NO_SUCH_LEDGER, -1)
        poll = asked.poll(beyond=-1)
        await asked.settled()
        assert not poll.done()
        asked.reply = LastAddConfirmedReply(Status.OK, 0)
        asked.polls.wake([LEDGER])
        assert (await poll).last_add_confirmed == 0

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))


def test_news_that_come_while_the_bookie_is_asked_are_not_missed():
    async def run():
        asked = Asked()
        first = asked.reply

        async def ask() -> LastAddConfirmedReply:
            asked.count += 1
            if asked.count == 1:
                asked.reply = LastAddConfirmedReply(Status.OK, 5)
                asked.polls.wake([LEDGER])
                return first
            return asked.reply

        request = LastAddConfirmedRequest("bookie-1", LEDGER, b"", beyond=4, wait_ms=MAX_WAIT_MS)
        assert (await asked.polls.answer(request, ask)).last_add_confirmed == 5

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))


def test_a_poll_whose_client_went_away_gives_its_place_free():
    async def run():
        asked = Asked()
        polls = [asked.poll(), asked.poll()]
        await asked.settled()
        polls[0].cancel()
        await asked.settled()
        assert asked.polls.count == 1
        asked.polls.end()
        await polls[1]
        assert asked.polls.count == 0

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))


def test_the_end_of_the_bookie_answers_all_polls_and_keeps_no_later_one():
    async def run():
        asked = Asked()
        poll = asked.poll()
        await asked.settled()
        asked.polls.end()
        assert await poll == asked.reply
        assert await asked.poll() == asked.reply

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))


def test_above_their_maximum_polls_are_answered_at_once(monkeypatch):
    monkeypatch.setattr(long_poll, "MAX_LONG_POLLS", 2)

    async def run():
        asked = Asked()
        kept = [asked.poll(), asked.poll()]
        await asked.settled()
        assert await asked.poll() == asked.reply
        assert not any(one.done() for one in kept)
        asked.polls.end()
        await asyncio.gather(*kept)

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))
