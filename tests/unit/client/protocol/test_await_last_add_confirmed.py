"""A long poll for what is confirmed next. Ref: protocol rule 59; situation 46."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import pytest

from bk_spark.client.protocol.last_add_confirmed import MAX_PAUSE_MS, RECHECK_MS, ROUTINE_LOOK_MS, AwaitLastAddConfirmed
from bk_spark.client.protocol.state_machine import (
    Command,
    Event,
    Finish,
    LastAddConfirmedAnswered,
    MetadataGone,
    MetadataRead,
    MetadataUnknown,
    ReadMetadata,
    SendReadLastAddConfirmed,
    Start,
    Tick,
)
from bk_spark.config import LedgerOptions
from bk_spark.errors import (
    BookieUnavailableError,
    BookKeeperError,
    MetadataUnavailableError,
    NoSuchLedgerError,
)
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState, new_ledger
from bk_spark.wire.messages import MAX_WAIT_MS, Status

WAIT_MS = 10_000
TIMEOUT_MS = 1_000
OLD = ("b0", "b1", "b2")
NEW = ("b3", "b4", "b5")
STORE_DOWN = MetadataUnknown(MetadataUnavailableError("zk://somewhere", "no answer"))


def _ledger(*fragments: tuple[int, tuple[str, ...]]) -> LedgerMetadata:
    metadata = new_ledger(7, LedgerOptions(), OLD, created_ms=0, creator_token=0)
    if not fragments:
        return metadata
    return dataclasses.replace(metadata, fragments=tuple(Fragment(first, ensemble) for first, ensemble in fragments))


@dataclass
class Waiter:
    """One wait, driven by hand."""

    metadata: LedgerMetadata = field(default_factory=_ledger)
    beyond: int = 9
    wait_ms: int = WAIT_MS
    now_ms: int = 0
    log: list[Command] = field(default_factory=list)
    polls: dict[str, int] = field(default_factory=dict)
    """The last request to each bookie."""

    def __post_init__(self) -> None:
        self.machine = AwaitLastAddConfirmed(self.metadata, self.beyond, wait_ms=self.wait_ms, timeout_ms=TIMEOUT_MS)
        self.post(Start())

    def post(self, event: Event) -> list[Command]:
        self.machine.handle(event, self.now_ms)
        commands = self.machine.take_commands()
        self.log += commands
        self.polls |= {c.bookie_id: c.request_id for c in commands if isinstance(c, SendReadLastAddConfirmed)}
        return commands

    def answer(self, bookie: str, lac: int, status: Status = Status.OK, *, is_fenced: bool = False) -> list[Command]:
        return self.post(LastAddConfirmedAnswered(self.polls[bookie], status, lac, "", is_fenced))

    def store(self, metadata: LedgerMetadata | None = None) -> list[Command]:
        return self.post(MetadataRead(self.metadata if metadata is None else metadata, 1))

    def run_to(self, now_ms: int) -> list[Command]:
        """Let the time pass, with a tick at each deadline; there are only so many."""
        commands: list[Command] = []
        for _ in range(200):
            deadline = self.machine.deadline_ms()
            if deadline is None or deadline > now_ms:
                self.now_ms = now_ms
                return commands
            assert deadline >= self.now_ms, "a deadline that was met is set again"
            self.now_ms = deadline
            commands += self.post(Tick())
        raise AssertionError("it wants to be called all the time")

    def sent(self, bookie: str) -> list[SendReadLastAddConfirmed]:
        return [c for c in self.log if isinstance(c, SendReadLastAddConfirmed) and c.bookie_id == bookie]

    @property
    def looks(self) -> int:
        return sum(isinstance(c, ReadMetadata) for c in self.log)

    @property
    def finish(self) -> Finish | None:
        return next((c for c in self.log if isinstance(c, Finish)), None)

    @property
    def found(self) -> int | None:
        """The last add confirmed that it ended with; None if it did not end."""
        if self.finish is None:
            return None
        assert self.finish.error is None, self.finish.error
        assert isinstance(self.finish.result, tuple)
        return int(self.finish.result[1])

    @property
    def error(self) -> BookKeeperError | None:
        return self.finish.error if self.finish is not None else None


def test_every_bookie_of_the_last_ensemble_is_asked_to_wait() -> None:
    waiter = Waiter(_ledger((0, OLD), (5, NEW)))
    assert waiter.log == [SendReadLastAddConfirmed(i + 1, bookie, beyond=9, wait_ms=WAIT_MS) for i, bookie in enumerate(NEW)]


def test_it_wakes_as_soon_as_one_bookie_knows_more() -> None:
    """Situation 46: on a move of the last add confirmed, and never past it."""
    waiter = Waiter()
    waiter.now_ms = 300
    waiter.answer("b1", 12)
    assert waiter.finish == Finish((waiter.metadata, 12))
    assert waiter.machine.deadline_ms() is None
    assert waiter.answer("b0", 14) == []


def test_it_wakes_when_the_metadata_shows_that_the_ledger_is_closed() -> None:
    """Situation 46: on close, be it at the very entry that is known."""
    for last in (9, 20):
        waiter = Waiter()
        waiter.answer("b0", 9, is_fenced=True)
        closed = _ledger().closed_at(last, 0)
        waiter.store(closed)
        assert waiter.finish == Finish((closed, last))


def test_it_ends_in_time_with_what_is_known() -> None:
    """Situation 46: on time-out. The bookies answer when their wait is over."""
    waiter = Waiter()
    waiter.run_to(WAIT_MS)
    assert waiter.finish is None
    waiter.store()
    waiter.answer("b2", 8)
    assert waiter.finish == Finish((waiter.metadata, 8))


def test_a_closed_ledger_is_not_waited_for() -> None:
    closed = _ledger().closed_at(3, 0)
    assert Waiter(closed).log == [Finish((closed, 3))]


def test_a_fragment_that_starts_beyond_the_entry_is_news_itself() -> None:
    """All before it is confirmed. Ref: protocol rule 6."""
    metadata = _ledger((0, OLD), (12, NEW))
    assert Waiter(metadata).log == [Finish((metadata, 11))]
    waiter = Waiter()
    waiter.answer("b0", -1, Status.UNKNOWN)
    waiter.store(metadata)
    assert waiter.found == 11


def test_what_is_known_is_never_below_the_start_of_the_last_fragment() -> None:
    waiter = Waiter(_ledger((0, OLD), (5, NEW)))
    waiter.answer("b3", -1, Status.NO_SUCH_LEDGER)
    waiter.store()
    waiter.run_to(WAIT_MS)
    waiter.store()
    assert waiter.found == 4


@pytest.mark.parametrize("status", [Status.UNKNOWN, Status.IO_ERROR, Status.WRONG_BOOKIE, Status.NO_SUCH_LEDGER])
def test_what_comes_with_any_other_status_is_not_believed(status: Status) -> None:
    waiter = Waiter()
    waiter.answer("b0", 99, status)
    assert waiter.finish is None
    waiter.answer("b1", 10)
    assert waiter.found == 10


def test_a_fenced_ledger_is_looked_up_at_a_bounded_rate_until_it_is_closed() -> None:
    """The end of a recovery stands in the metadata alone. Ref: protocol rule 59."""
    waiter = Waiter()
    waiter.answer("b0", 9, is_fenced=True)
    for look in range(1, 11):
        assert waiter.looks == look
        waiter.store()
        waiter.run_to(look * RECHECK_MS - 1)
        assert waiter.looks == look
        waiter.run_to(look * RECHECK_MS)
    assert len(waiter.sent("b0")) == 1
    waiter.store(_ledger().closed_at(15, 0))
    assert waiter.found == 15


def test_a_ledger_in_recovery_is_looked_up_too_though_no_bookie_told_of_a_fence() -> None:
    waiter = Waiter()
    waiter.answer("b0", -1, Status.UNKNOWN)
    waiter.store(dataclasses.replace(_ledger(), state=LedgerState.IN_RECOVERY))
    waiter.run_to(RECHECK_MS)
    assert waiter.looks == 2


def test_an_abandoned_recovery_ends_the_wait_in_time() -> None:
    waiter = Waiter(wait_ms=3 * RECHECK_MS)
    for bookie in OLD:
        waiter.answer(bookie, 7, is_fenced=True)
    waiter.store()
    for _ in range(5):
        waiter.run_to(waiter.now_ms + RECHECK_MS)
        waiter.store()
    assert waiter.found == 7


@pytest.mark.parametrize("kept", [0, 1])
def test_after_an_ensemble_change_the_new_bookies_are_polled(kept: int) -> None:
    """Ref: protocol rule 59."""
    ensemble = (*OLD[:kept], *NEW[kept:])
    waiter = Waiter()
    waiter.now_ms = 2_000
    waiter.answer("b2", -1, Status.UNKNOWN)
    changed = _ledger((0, OLD), (10, ensemble))
    sent = waiter.store(changed)
    assert [c for c in sent if isinstance(c, SendReadLastAddConfirmed)] == [
        SendReadLastAddConfirmed(waiter.polls[bookie], bookie, beyond=9, wait_ms=WAIT_MS - 2_000) for bookie in NEW[kept:]
    ]
    waiter.answer("b5", 10)
    assert waiter.finish == Finish((changed, 10))


def test_a_close_that_no_bookie_is_told_of_is_noticed_by_a_look_at_the_metadata() -> None:
    """Situation 46: a writer that closes its ledger tells the metadata store alone, and the bookies wait in vain."""
    waiter = Waiter()
    for look in range(1, 4):
        waiter.run_to(look * ROUTINE_LOOK_MS - 1)
        assert waiter.looks == look - 1
        waiter.run_to(look * ROUTINE_LOOK_MS)
        assert waiter.looks == look
        waiter.store()
    waiter.run_to(4 * ROUTINE_LOOK_MS)
    waiter.store(_ledger().closed_at(9, 0))
    assert waiter.found == 9


def test_one_look_at_the_metadata_is_under_way_at_a_time() -> None:
    waiter = Waiter()
    waiter.answer("b0", 9, is_fenced=True)
    waiter.answer("b1", -1, Status.UNKNOWN)
    waiter.run_to(WAIT_MS - 1)
    assert waiter.looks == 1


def test_bookies_that_wait_in_vain_do_not_hide_an_ensemble_change() -> None:
    """All of the former ensemble are well, and hear nothing any more. The shortest wait, too, looks at the metadata."""
    waiter = Waiter(wait_ms=RECHECK_MS)
    waiter.run_to(RECHECK_MS)
    assert waiter.looks == 1
    changed = _ledger((0, OLD), (10, NEW))
    waiter.answer("b0", 9)
    waiter.store(changed)
    assert waiter.finish == Finish((changed, 9))


def test_a_bookie_whose_wait_is_shorter_is_polled_again_and_the_metadata_looked_at() -> None:
    waiter = Waiter(wait_ms=3 * MAX_WAIT_MS)
    assert [c.wait_ms for c in waiter.sent("b0")] == [MAX_WAIT_MS]
    waiter.now_ms = MAX_WAIT_MS
    sent = waiter.answer("b0", 9)
    assert sent == [SendReadLastAddConfirmed(4, "b0", beyond=9, wait_ms=MAX_WAIT_MS), ReadMetadata()]
    waiter.store()
    waiter.answer("b1", 9)
    waiter.run_to(MAX_WAIT_MS + RECHECK_MS)
    assert waiter.looks == 2


def test_a_poll_does_not_reach_beyond_the_end_of_the_wait() -> None:
    waiter = Waiter()
    waiter.now_ms = 7_000
    waiter.answer("b0", 9)
    assert [c.wait_ms for c in waiter.sent("b0")] == [WAIT_MS, WAIT_MS - 7_000]


def test_a_bookie_that_is_down_is_polled_and_the_metadata_looked_at_ever_less_often() -> None:
    waiter = Waiter()
    while waiter.now_ms < WAIT_MS:
        waiter.answer("b0", -1, Status.UNKNOWN)
        waiter.store()
        waiter.run_to(min(waiter.machine.deadline_ms() or WAIT_MS, WAIT_MS))
    expected = WAIT_MS // MAX_PAUSE_MS + 3
    assert len(waiter.sent("b0")) in range(expected - 2, expected + 1)
    assert waiter.looks <= 2 * expected
    assert len(waiter.sent("b1")) == 1


def test_a_bookie_that_comes_back_is_heard() -> None:
    waiter = Waiter()
    waiter.answer("b0", -1, Status.UNKNOWN)
    waiter.store()
    waiter.run_to(RECHECK_MS)
    waiter.answer("b0", 11)
    assert waiter.found == 11


def test_a_silent_bookie_is_given_up_after_its_wait_and_the_time_out() -> None:
    waiter = Waiter(wait_ms=2 * MAX_WAIT_MS)
    waiter.run_to(MAX_WAIT_MS + TIMEOUT_MS - 1)
    assert len(waiter.sent("b0")) == 1
    waiter.run_to(MAX_WAIT_MS + TIMEOUT_MS)
    assert len(waiter.sent("b0")) == 2


def test_a_late_answer_of_a_poll_that_was_given_up_is_ignored() -> None:
    waiter = Waiter(wait_ms=2 * MAX_WAIT_MS)
    waiter.run_to(MAX_WAIT_MS + TIMEOUT_MS)
    assert waiter.post(LastAddConfirmedAnswered(1, Status.OK, 12)) == []


def test_the_store_alone_is_enough_to_end_without_an_error() -> None:
    waiter = Waiter()
    waiter.run_to(WAIT_MS)
    waiter.store()
    waiter.run_to(WAIT_MS + TIMEOUT_MS)
    assert waiter.found == -1


def test_one_bookie_alone_is_enough_to_end_without_an_error() -> None:
    waiter = Waiter()
    waiter.answer("b0", 5)
    waiter.post(STORE_DOWN)
    waiter.run_to(WAIT_MS)
    waiter.post(STORE_DOWN)
    waiter.run_to(WAIT_MS + TIMEOUT_MS)
    assert waiter.found == 5


def test_a_wait_that_nobody_answered_fails_and_names_the_bookies() -> None:
    waiter = Waiter()
    waiter.answer("b1", 99, Status.IO_ERROR)
    waiter.post(STORE_DOWN)
    waiter.run_to(WAIT_MS)
    waiter.post(STORE_DOWN)
    waiter.run_to(WAIT_MS + TIMEOUT_MS)
    assert isinstance(waiter.error, BookieUnavailableError)
    assert "b0: no answer" in str(waiter.error)
    assert "entry 10" in str(waiter.error)


def test_a_store_that_never_answers_does_not_hold_up_the_end() -> None:
    waiter = Waiter()
    waiter.answer("b0", 5)
    waiter.run_to(WAIT_MS + TIMEOUT_MS)
    assert waiter.looks == 1
    assert waiter.found == 5


def test_a_wait_of_no_time_asks_everybody_once() -> None:
    waiter = Waiter(wait_ms=0)
    assert [c.wait_ms for c in waiter.log if isinstance(c, SendReadLastAddConfirmed)] == [0, 0, 0]
    waiter.store()
    assert waiter.finish is None
    waiter.answer("b0", 6)
    assert waiter.found == 6


def test_a_bookie_with_a_foreign_key_ends_no_wait() -> None:
    """Protocol rule 24."""
    waiter = Waiter()
    waiter.answer("b1", -1, Status.UNAUTHORIZED)
    assert waiter.finish is None
    waiter.answer("b0", 11)
    assert waiter.found == 11


def test_a_ledger_that_was_deleted_meanwhile_ends_it() -> None:
    waiter = Waiter()
    waiter.answer("b1", -1, Status.NO_SUCH_LEDGER)
    waiter.post(MetadataGone())
    assert isinstance(waiter.error, NoSuchLedgerError)
