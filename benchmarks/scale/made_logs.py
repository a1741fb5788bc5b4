"""Logs that are metadata alone, as their commits would have left them: one long one, and many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.scale.filler import Filler
from benchmarks.scale.made_ledgers import TIME_MS, listed, made_ledger, tags_of, total_of, write_ledger
from benchmarks.scale.size import LEDGERS_OF_LOG, PER_COMMIT, Size
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.checkpoint import CheckpointState, is_worth
from bk_spark.log.stored.paths import CHECKPOINT_INTERVAL, LogPaths
from bk_spark.log.stored.values import (
    LEDGERS_PER_PAGE,
    CommitKind,
    CommittedLedger,
    Content,
    Head,
    JobState,
    LogVersion,
    Page,
    Retention,
    Totals,
)
from bk_spark.metadata.store import Create, SetValue, StoreChange
from bk_spark.metadata.znodes import Znodes

LONG_LOG = "long"
EXPIRED_EACH = 10
"""Of so many logs one has an old version that nobody keeps: a vacuum deletes its ledgers."""


@dataclass(frozen=True, slots=True)
class MadeCommit:
    """A version of a log and the ledgers that it adds."""

    number: int
    job_id: str
    kind: CommitKind
    ledgers: Sequence[CommittedLedger]
    total: Totals
    end_row: int

    def changes(self, paths: LogPaths) -> list[StoreChange]:
        """What the commit leaves, but for the head. The parents of the version and of the job are there."""
        job = paths.job(self.job_id)
        state, page = JobState(None, paths.root.rsplit("/", 1)[1], self.number), Page(tuple(self.ledgers), ())
        return [
            Create(paths.version(self.number), self._version().encode()),
            Create(job.root, state.encode()),
            Create(job.pages),
            Create(job.page(0), page.encode()),
        ]

    def head(self, name: str) -> Head:
        is_overwrite = self.kind is CommitKind.OVERWRITE
        replaced = self.number if is_overwrite else 0
        return Head(
            name,
            self.number,
            TIME_MS,
            Content.ENTRIES,
            total=self.total,
            end_row=self.end_row,
            base_version=replaced,
            replaced_version=replaced,
        )

    def _version(self) -> LogVersion:
        replaced = self.number if self.kind is CommitKind.OVERWRITE else 0
        added = Totals.of(self.ledgers)
        return LogVersion(
            version=self.number,
            time_ms=TIME_MS,
            kind=self.kind,
            content=Content.ENTRIES,
            schema_id=None,
            base_version=replaced,
            application=None,
            job_id=self.job_id,
            pages=1,
            added=added,
            removed=added if replaced else Totals(),
            total=self.total,
            replaced_version=replaced,
            end_row=self.end_row,
            epoch=0,
        )


def appends(ids: range, prefix: str) -> Iterator[MadeCommit]:
    """Commits of PER_COMMIT ledgers each. ``prefix`` tells their jobs from those of other logs."""
    for number in range(1, len(ids) // PER_COMMIT + 1):
        some, total = ids[(number - 1) * PER_COMMIT : number * PER_COMMIT], total_of(number * PER_COMMIT)
        yield MadeCommit(number, f"{prefix}{number:028x}", CommitKind.APPEND, [*map(listed, some)], total, total.rows)


class LogMaker:
    """Writes logs. ``bookies`` are those that ledgers name."""

    def __init__(self, logs: LogStore, znodes: Znodes, bookies: Sequence[str]) -> None:
        self._logs = logs
        self._znodes = znodes
        self._bookies = bookies

    def write_long(self, size: Size) -> None:
        """The log of ledgers 0 and on, with the checkpoints that its commits would have written."""
        uid = self._logs.open(LONG_LOG, create=True)
        last = self.write_commits(uid, appends(range(size.ledgers), "long"))
        with Filler(self._logs.store) as filler:
            self._write_checkpoints(filler, self._logs.names.paths(uid), size)
        self.write_head(LONG_LOG, uid, last)

    def write_commits(self, uid: str, commits: Iterable[MadeCommit]) -> MadeCommit:
        """All that they would have left in an empty log, with their ledgers, but for the head. Returns the last one."""
        paths, commit = self._logs.names.paths(uid), None
        with Filler(self._logs.store) as filler:
            for commit in commits:
                filler.parent(paths.version_bucket(commit.number))
                filler.parent(paths.job_bucket(commit.job_id))
                filler.add(commit.changes(paths))
                self._write_ledgers(filler, uid, commit)
        assert commit is not None, "there is one at least"
        return commit

    def write_head(self, name: str, uid: str, last: MadeCommit) -> None:
        """Make the commits visible."""
        path = self._logs.names.paths(uid).head
        self._logs.store.set(path, last.head(name).encode(), self._logs.store.get(path).version)

    def write_many(self, size: Size) -> None:
        """The other logs, whose ledgers follow those of the long one."""
        with Filler(self._logs.store) as filler:
            for number in range(size.logs - 1):
                self._write_one(filler, number, size)

    def leave_orphans(self, size: Size) -> None:
        """Writes that nobody continues, and the data of logs that never came to be."""
        for number in range(size.orphans):
            self._logs.jobs.ensure(self._logs.jobs.begin(log_name(number % (size.logs - 1), size)))
            self._logs.names.prepare(f"never{number:06d}")

    def _write_ledgers(self, filler: Filler, uid: str, commit: MadeCommit) -> None:
        """Those that the commit lists."""
        tags = tags_of(uid, commit.job_id)
        for one in commit.ledgers:
            write_ledger(filler, self._znodes, made_ledger(self._bookies, one.ledger_id, tags))

    def _write_checkpoints(self, filler: Filler, paths: LogPaths, size: Size) -> None:
        """The listing only grows, so full pages are the same in all checkpoints: they are encoded once."""
        full: list[bytes] = []
        for version in _checkpoints(size):
            count, rest = divmod(version * PER_COMMIT, LEDGERS_PER_PAGE)
            full += [_page(number, LEDGERS_PER_PAGE) for number in range(len(full), count)]
            pages = [*full[:count], *([_page(count, rest)] if rest else [])]
            filler.parent(paths.checkpoint_bucket(version))
            filler.parent(paths.checkpoint(version))
            filler.add_all(Create(paths.checkpoint_page(version, at), page) for at, page in enumerate(pages))
            filler.add([SetValue(paths.checkpoint(version), CheckpointState(version, len(pages), ()).encode(), 0)])

    def _write_one(self, filler: Filler, number: int, size: Size) -> None:
        """Two commits, each of half of the ledgers. Of some logs the second one has replaced the first."""
        name, uid = log_name(number, size), f"made{number:06d}"
        paths, half = self._logs.names.paths(uid), LEDGERS_OF_LOG // 2
        is_expired = number >= size.followed_logs and number % EXPIRED_EACH == 0
        ids = range(size.ledgers + number * LEDGERS_OF_LOG, size.ledgers + (number + 1) * LEDGERS_OF_LOG)
        kind = CommitKind.OVERWRITE if is_expired else CommitKind.APPEND
        both, one = total_of(LEDGERS_OF_LOG), total_of(half)
        commits = [
            MadeCommit(1, f"{uid}first", CommitKind.APPEND, [*map(listed, ids[:half])], one, one.rows),
            MadeCommit(2, f"{uid}second", kind, [*map(listed, ids[half:])], one if is_expired else both, both.rows),
        ]
        head = commits[-1].head(name)
        if is_expired:
            head = replace(head, retention=Retention(version_retention_s=0))
        directories = dict.fromkeys(
            [paths.root, paths.versions, paths.version_bucket(0), *paths.directories]
            + [paths.job_bucket(commit.job_id) for commit in commits]
        )
        filler.add(
            [
                *map(Create, directories),
                *(change for commit in commits for change in commit.changes(paths)),
                *self._logs.names.creation(name, uid, head),
            ]
        )
        for commit in commits:
            self._write_ledgers(filler, uid, commit)


def log_name(number: int, size: Size) -> str:
    return f"{'followed' if number < size.followed_logs else 'log'}-{number:05d}"


def _checkpoints(size: Size) -> Iterator[int]:
    """The versions of the long log that have one."""
    last = 0
    for version in range(CHECKPOINT_INTERVAL, size.versions + 1, CHECKPOINT_INTERVAL):
        if is_worth(version - last, version * PER_COMMIT, last * PER_COMMIT):
            yield version
            last = version


def _page(number: int, ledgers: int) -> bytes:
    """A page of the long log's listing."""
    first = number * LEDGERS_PER_PAGE
    return Page(tuple(map(listed, range(first, first + ledgers))), ()).encode()
