"""Schedules of log rules 2 and 3: leaders, and who comes behind them. See test_log_rules.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from bk_spark.errors import LedgerFencedError
from bk_spark.log.changes import plan
from bk_spark.log.changes.open_ledgers import OpenLedgerEnds
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.entry_range import LedgerReader, LogRange
from bk_spark.log.leader.roll_log import RollLimits, RollLog
from bk_spark.log.stored.values import CommitKind, OpenLedger
from tests.unit.log.log_case import Bookies, LogCases, Scene, ended, must

CASES = LogCases()
LOG = "orders"


# --- rule 2


def _leave_open_what_is_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OpenLedgerEnds, "find", lambda self, head: self._closed_already(head.writer.open_ledgers, head.content))


@CASES.add(2, _leave_open_what_is_open, "a commit recovers the open ledgers that it finds")
def a_spark_append_lands_behind_a_live_leader(scene: Scene) -> None:
    bookies = Bookies(scene)
    ledger_id = bookies.lead(LOG)
    bookies.add(ledger_id, "a0")
    bookies.write(LOG, "row")
    confirmed = ["a0", "row"]
    if not ended(lambda: bookies.add(ledger_id, "a1"), LedgerFencedError):
        confirmed.append("a1")
    content = bookies.content(LOG)
    must(content == confirmed, f"in the order of their confirmations the entries are {confirmed}, in the log {content}")


@CASES.add(2, _leave_open_what_is_open, "open_writer recovers the open ledgers that it finds")
def two_leaders_have_the_log_at_once(scene: Scene) -> None:
    bookies = Bookies(scene)
    first = bookies.lead(LOG)
    second = bookies.lead(LOG)
    confirmed = []
    for ledger_id, entry in ((first, "a0"), (second, "b0"), (first, "a1")):
        if not ended(lambda ledger_id=ledger_id, entry=entry: bookies.add(ledger_id, entry), LedgerFencedError):  # type: ignore[misc]
            confirmed.append(entry)
    content = bookies.content(LOG)
    must(content == confirmed, f"in the order of their confirmations the entries are {confirmed}, in the log {content}")


def _ignore_the_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OpenLedgerEnds, "check_leader", lambda self, head: None)


@CASES.add(2, _ignore_the_epoch, "a leader's commit is refused once the log's writer has another epoch")
def a_displaced_leader_rolls(scene: Scene) -> None:
    """It has not heard of its successor, and lists a ledger behind that one's."""
    bookies = Bookies(scene)
    bookies.lead(LOG)
    uid = bookies.logs.names.uid(LOG)
    epoch = bookies.logs.names.head(LOG, uid).writer.epoch
    successor = bookies.lead(LOG)
    job = bookies.logs.jobs.begin(LOG)
    rolled = scene.open_ledger(job, bookies.logs)
    request = CommitRequest(CommitKind.APPEND, opened=rolled, leader_epoch=epoch)
    confirmed = []
    if not ended(lambda: bookies.logs.commit(job, request), LedgerFencedError):
        bookies.add(rolled, "a0")
        confirmed.append("a0")
    bookies.add(successor, "b0")
    confirmed.append("b0")
    content = bookies.content(LOG)
    must(content == confirmed, f"in the order of their confirmations the entries are {confirmed}, in the log {content}")


class _Ledger:
    """A ledger that a reader has opened."""

    def __init__(self, entries: list[str], is_closed: bool) -> None:
        self.is_closed = is_closed
        self.last_add_confirmed = len(entries) - 1
        self._entries = entries

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"payload": pa.array(self._entries[first : last + 1])})


def _read_on(patch: pytest.MonkeyPatch) -> None:
    def read(self: LogRange, open_ledger: Callable[[int], LedgerReader]) -> Iterator[pa.RecordBatch]:
        for one in self.ledgers:
            ledger = open_ledger(one.ledger_id)
            yield from ledger.read(0, ledger.last_add_confirmed)

    patch.setattr(LogRange, "read", read)


@CASES.add(2, _read_on, "no reader passes a ledger that is not CLOSED and read to its end")
def a_reader_comes_between_a_roll_and_the_close_of_the_old_ledger(scene: Scene) -> None:
    """What the old ledger's bookies tell of its confirmed end lags behind."""
    told = {5: _Ledger(["a0"], False), 6: _Ledger(["b0"], False)}
    listed = (OpenLedger(5, 1), OpenLedger(6, 2))
    read = [
        one.as_py() for batch in LogRange.of(LOG, listed, None, None).read(told.__getitem__) for one in batch.column("payload")
    ]
    whole = ["a0", "a1", "b0"]
    must(read == whole[: len(read)], f"{read} was read of a log that holds {whole}")


# --- rule 3


def _send_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RollLog, "is_queueing", False)


@CASES.add(3, _send_at_once, "after a roll appends wait until every append to the old ledger is confirmed")
def a_leader_is_displaced_in_the_middle_of_a_roll(scene: Scene) -> None:
    """a1 is on its way to ledger 5 and reaches nobody; b0 is appended after the roll; both ledgers are recovered."""
    stored: dict[str, list[str]] = {"5": [], "6": []}
    rolls: RollLog[str, str] = RollLog("5", RollLimits(roll_bytes=2, window_bytes=100))
    for entry in ("a0", "a1"):
        rolls.append(entry, 1)
        assert rolls.next() == entry
    stored["5"].append("a0")
    rolls.confirmed(1)
    rolls.begin_roll()
    rolls.opened("6")
    rolls.append("b0", 1)
    if rolls.next() is not None:
        stored[rolls.ledger].append("b0")
    log = stored["5"] + stored["6"]
    must(log == ["a0", "a1", "b0"][: len(log)], f"the log is {log}: an entry without its predecessor")


def _allow_any_number(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plan, "MAX_OPEN_LEDGERS", 1000)


@CASES.add(3, _allow_any_number, "the old ledger is closed before the next roll")
def a_leader_rolls_again_before_it_closed_the_old_ledger(scene: Scene) -> None:
    """Who takes the log over looks at its last two ledgers."""
    bookies = Bookies(scene)
    bookies.lead(LOG)
    head = bookies.logs.names.head(LOG, bookies.logs.names.uid(LOG))
    for _ in range(2):
        job = bookies.logs.jobs.begin(LOG)
        request = CommitRequest(CommitKind.APPEND, opened=scene.open_ledger(job, bookies.logs), leader_epoch=head.writer.epoch)
        ended(lambda job=job, request=request: bookies.logs.commit(job, request), Exception)  # type: ignore[misc]
    open_ledgers = bookies.logs.reader.snapshot(LOG).open_ledgers
    must(len(open_ledgers) <= 2, f"{len(open_ledgers)} ledgers of the log take entries")
