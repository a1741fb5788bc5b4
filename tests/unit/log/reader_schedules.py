"""Schedules of log rules 6, 7 and 8: streams that follow a log, and a vacuum under its readers. See test_log_rules.py."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bk_spark.errors import LogReplacedError
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.cleanup.store_clock import StoreTimes
from bk_spark.log.cleanup.vacuum import LogVacuum, VacuumReport, _ids, _Log
from bk_spark.log.stored.values import CommitKind, CommittedLedger, Head, LogVersion, Page
from bk_spark.log.stream import follow
from bk_spark.log.stream.follow import LedgerEnd, LogFollower
from bk_spark.log.stream.order import FAIL, Given, StreamOrder
from bk_spark.log.stream.positions import StreamPosition, behind
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from tests.unit.log.log_case import DAY_MS, Bookies, Died, Interposed, LogCases, Scene, die, ended, must

CASES = LogCases()
LOG = "orders"


def _follower(scene: Scene, overwrites: str = FAIL) -> LogFollower:
    def describe(ledger_ids: Sequence[int]) -> list[LedgerMetadata]:
        stored = scene.store.get_many([scene.znodes.ledger(one) for one in ledger_ids])
        return [LedgerMetadata.decode(one, found.value) for one, found in zip(ledger_ids, stored, strict=True) if found]

    return LogFollower(scene.logs.reader, LOG, scene.logs.names.uid(LOG), overwrites, describe)


# --- rule 6


def _give_compacted_ledgers(patch: pytest.MonkeyPatch) -> None:
    given_by, may_give = StreamOrder._given_by, LogFollower._may_give

    def all_that_is_added(
        self: StreamOrder, record: LogVersion, pages: list[Page], ends: dict[int, CommittedLedger]
    ) -> list[Given]:
        if record.kind is CommitKind.COMPACT:
            return self._added(record, pages, ends)
        return given_by(self, record, pages, ends)

    patch.setattr(StreamOrder, "_given_by", all_that_is_added)
    patch.setattr(LogFollower, "_may_give", lambda self, record: record.kind is CommitKind.COMPACT or may_give(self, record))


@CASES.add(6, _give_compacted_ledgers, "a stream steps over commits of kind compact")
def a_log_is_compacted_under_a_stream(scene: Scene) -> None:
    """The stream stands in the middle of the first of two ledgers, which one with the same rows replaces."""
    first, second = scene.write(LOG), scene.write(LOG)
    start = StreamPosition(1, 0, first.ledger_id, 4)
    scene.compact(LOG, [first, second])
    follower, head = _follower(scene), scene.logs.names.head(LOG, scene.logs.names.uid(LOG))
    end = follower.newest(head, {}, start).position
    stretches = list(follower.stretches(start, end, head, fail_on_data_loss=True))
    rows = sum(one.rows for one in stretches)
    must(rows == 16, f"{rows} rows were read behind the fourth of twenty")
    must(
        [(one.ledger_id, one.first_entry_id) for one in stretches] == [(first.ledger_id, 4), (second.ledger_id, 0)],
        f"the stream read {stretches}",
    )


def _pass_over_replacements(patch: pytest.MonkeyPatch) -> None:
    given_by = StreamOrder._given_by

    def nothing_of_them(
        self: StreamOrder, record: LogVersion, pages: list[Page], ends: dict[int, CommittedLedger]
    ) -> list[Given]:
        return [] if record.kind is CommitKind.REPLACE else given_by(self, record, pages, ends)

    patch.setattr(StreamOrder, "_given_by", nothing_of_them)


@CASES.add(6, _pass_over_replacements, "a replacement stops a stream that was not told what to do then")
def rows_are_replaced_under_a_stream(scene: Scene) -> None:
    first = scene.write(LOG)
    job = scene.logs.jobs.begin(LOG)
    scene.logs.commit(job, CommitRequest(CommitKind.REPLACE, (scene.job_ledger(job, 3),), remove=(first.ledger_id,)))
    scene.write(LOG)
    follower, head = _follower(scene), scene.logs.names.head(LOG, scene.logs.names.uid(LOG))
    read: list[int] = []

    def go_on() -> None:
        read.extend(one.ledger_id for one in follower.stretches(behind(1), behind(3), head, fail_on_data_loss=True))

    must(ended(go_on, LogReplacedError), f"the stream read ledgers {read}, and never heard of the three rows that were put in")


# --- rule 7


def _take_what_bookies_say(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(follow, "max", lambda start, found: found, raising=False)
    patch.setattr(LogFollower, "_carried_over", lambda self, start, head: behind(0))


@CASES.add(7, _take_what_bookies_say, "the latest position never moves back (and what is not above the start is the start)")
def a_restarted_stream_asks_bookies_that_lag_behind(scene: Scene) -> None:
    bookies = Bookies(scene)
    ledger_id = bookies.lead(LOG)
    follower, head = _follower(scene), scene.logs.names.head(LOG, scene.logs.names.uid(LOG))
    before = follower.newest(head, {ledger_id: LedgerEnd(8, False)}, behind(0)).position
    after = follower.newest(head, {ledger_id: LedgerEnd(5, False)}, before).position
    must(after >= before, f"the stream had read up to {before}, and its latest offset is now {after}: rows come twice")


# --- rule 8


def _age_by_the_version_itself(patch: pytest.MonkeyPatch) -> None:
    def oldest(self: LogVacuum, log: _Log, head: Head, now_ms: int) -> int:
        limit_ms = now_ms - head.retention.version_retention_s * 1000
        paths = self._logs.names.paths(log.uid)
        young = (v for v, at in self._times.of_versions(paths, head.oldest_version + 1, head.version) if at >= limit_ms)
        return next(young, head.version)

    patch.setattr(LogVacuum, "_oldest_version", oldest)


def _vacuum(scene: Scene) -> VacuumReport:
    return LogVacuum(scene.logs).run(LOG)


@CASES.add(8, _age_by_the_version_itself, "a ledger's age is that of the commit that unlisted it")
def an_old_ledger_is_replaced_now(scene: Scene) -> None:
    """Thirty days old, unlisted a moment ago: somebody reads the version before, and retention is seven days."""
    old = scene.write(LOG)
    scene.store_ms += 30 * DAY_MS
    scene.compact(LOG, [old])
    scene.store_ms += 1000
    _vacuum(scene)
    must(scene.ledger_exists(old), "a ledger that was listed a second ago is deleted under its readers")
    scene.must_be_whole(LOG, 1)


def _believe_the_clients_clock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StoreTimes, "now_ms", lambda self: 108 * DAY_MS)


@CASES.add(8, _believe_the_clients_clock, "ages are by ZooKeeper's time")
def a_clock_is_a_week_ahead(scene: Scene) -> None:
    scene.now_ms = 108 * DAY_MS
    old = scene.write(LOG)
    scene.compact(LOG, [old])
    _vacuum(scene)
    must(scene.ledger_exists(old), "a ledger that was listed a moment ago is deleted under its readers")


def _delete_first(patch: pytest.MonkeyPatch) -> None:
    def run(self: LogVacuum, name: str) -> None:
        log = _Log(name, self._logs.names.uid(name))
        head = self._logs.names.head(name, log.uid)
        listing = self._logs.reader.listing(name, log.uid, self._oldest_version(log, head, self._times.now_ms()))
        everything = {
            one.ledger_id
            for _, pages in self._logs.reader.commits(name, log.uid, 1, head.version)
            for page in pages
            for one in page.ledgers
        }
        self._logs.ledgers.delete_listed(sorted(everything - _ids(listing)), log.uid)
        self._raise_oldest_version(log, self._times.now_ms())

    patch.setattr(LogVacuum, "run", run)


@CASES.add(8, _delete_first, "ledgers go only after a compare-and-set has raised the oldest version")
def a_vacuum_dies_before_it_has_told_readers(scene: Scene) -> None:
    old = scene.write(LOG)
    scene.compact(LOG, [old])
    scene.store_ms += 8 * DAY_MS
    store = Interposed(scene.new_session())
    store.before("set", "/head", die)
    assert ended(lambda: LogVacuum(scene.log_store(store)).run(LOG), Died)
    assert scene.logs.names.head(LOG, scene.logs.names.uid(LOG)).oldest_version == 0
    scene.must_be_whole(LOG, 1)
