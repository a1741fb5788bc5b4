"""Reading a log: its versions, and the listing of any version that is kept.

Everything below a head is immutable. So a reader that has read a head reads one consistent log, whatever is committed
meanwhile. It folds commits from the newest checkpoint or overwrite at or below its version, not from the log's beginning.
If something is missing, the reader reads the head again to tell what a vacuum removed from damage.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, TypeAlias, TypeVar

from bk_spark.config import MIB
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.errors import ConfigError, CorruptionError
from bk_spark.log.stored.checkpoint import CheckpointGoneError, ListingCheckpoints
from bk_spark.log.stored.lanes import PLAIN, Lanes
from bk_spark.log.stored.listing import Listing, ListingFold
from bk_spark.log.stored.names import LogNames
from bk_spark.log.stored.paths import LogPaths
from bk_spark.log.stored.schema import decode_schema
from bk_spark.log.stored.tier_mark import TierMark
from bk_spark.log.stored.tier_places import TierPlaces
from bk_spark.log.stored.tree import READS_AT_ONCE, chunks
from bk_spark.log.stored.values import (
    LEDGERS_PER_PAGE,
    CommittedLedger,
    Content,
    Head,
    LogVersion,
    OpenLedger,
    Page,
    Totals,
)
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.store import MetadataStore

_BYTES_AT_ONCE = 32 * MIB
"""Of values that are read in one round: PAGES_AT_ONCE full pages. What is beyond it comes with the next round."""
_BYTES_PER_LEDGER = 102
"""Bytes of a page for one ledger added and one removed: see LEDGERS_PER_PAGE."""
_VACUUM_TRIES = 10
"""Each further try means that a vacuum removed the very checkpoint that was being read."""
_PROBES_AT_ONCE = 31
"""Versions read in one round of a search for a time: 100,000 versions take four rounds."""

_KEPT_COUNTS = 1000
"""Leaders' ledgers whose rows are remembered: between a roll and the next one, streams ask for them at each look."""

CountRows: TypeAlias = Callable[[LedgerMetadata], int]
"""The rows of a CLOSED ledger, by asking its bookies."""

_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """A log as it stands at one version."""

    name: str
    uid: str
    version: int
    time_ms: int
    content: Content | None
    """None for a log without any commit."""
    schema_id: int | None
    schema_json: str | None
    """Spark's JSON, every column nullable; None unless the content is rows."""
    ledgers: tuple[CommittedLedger, ...]
    """The closed ledgers, in log order."""
    open_ledgers: tuple[OpenLedger, ...] = ()
    """The open ledgers behind them, in log order. Only their bookies know how far they go."""
    end_row: int = 0
    """The row number behind the last row of the closed ledgers."""
    lanes: Lanes = PLAIN
    tier: TierMark | None = None
    """How far the log's tier was when this was read."""


class LogReader:
    """Reads versions, pages and schemas. Pipelined: any version costs some ten round trips, however old the log is.

    Commits are folded in pieces of READS_AT_ONCE: 1,000 at most, or 15,000 where a listing has a million ledgers.
    """

    def __init__(
        self, store: MetadataStore, names: LogNames, checkpoints: ListingCheckpoints, count_rows: CountRows | None = None
    ) -> None:
        self._store = store
        self._names = names
        self._checkpoints = checkpoints
        self._count_rows = count_rows
        self.tier: Final = TierPlaces(store, names)
        self._counted: dict[int, int] = {}
        """Rows of ledgers that were counted lately."""

    def snapshot(self, name: str, version: int | None = None) -> LogSnapshot:
        """The log at ``version``, by default the newest.

        Raises NoSuchLogError; ConfigError for a version that does not exist, or that the log no longer keeps.
        """
        uid = self._names.uid(name)
        head = self._names.head(name, uid)
        check_version(name, head, version)
        wanted = head.version if version is None else version
        if wanted == 0:
            return LogSnapshot(name, uid, 0, head.time_ms if head.version == 0 else 0, None, None, None, ())
        at = self.version(name, uid, wanted)
        schema = None if at.schema_id is None else json.dumps(self.schema(name, uid, at.schema_id))
        listing = self._listing(name, uid, head, at)
        return LogSnapshot(
            name,
            uid,
            wanted,
            at.time_ms,
            at.content,
            at.schema_id,
            schema,
            listing.closed,
            listing.open,
            at.end_row,
            at.lanes,
            head.tier,
        )

    def listing(self, name: str, uid: str, version: int) -> Listing:
        """The ledgers of ``version`` in log order. Raises as ``snapshot``."""
        head = self._names.head(name, uid)
        check_version(name, head, version)
        return Listing() if version == 0 else self._listing(name, uid, head, self.version(name, uid, version))

    def recorded_listing(self, name: str, uid: str, version: int, oldest_record: int) -> Listing | None:
        """The listing of a version that may be too old to be read. None if a record that it is made of may be deleted.

        Costs all commits since the last overwrite: at most as many as the log keeps records of.
        """
        at = self.version(name, uid, version)
        first = max(at.base_version, 1)
        return None if first < oldest_record else self.advanced(name, uid, (first - 1, Listing()), version)

    def advanced(self, name: str, uid: str, known: tuple[int, Listing], version: int) -> Listing:
        """The listing of ``version``, made from that of an earlier version. Costs only the commits between them."""
        fold = ListingFold(name, known[1])
        for commit, pages in self.commits(name, uid, known[0] + 1, version):
            fold.apply(commit, pages)
        return fold.listing()

    def version(self, name: str, uid: str, version: int) -> LogVersion:
        """One commit. Raises as ``versions``."""
        return next(self.versions(name, uid, version, version))

    def all_versions(self, name: str) -> list[LogVersion]:
        """Every version that can be read, oldest first; empty for a log without any commit. Raises NoSuchLogError."""
        uid = self._names.uid(name)
        head = self._names.head(name, uid)
        return list(self.versions(name, uid, max(head.oldest_version, 1), head.version))

    def versions(self, name: str, uid: str, first: int, last: int) -> Iterator[LogVersion]:
        """The commits ``first`` to ``last``, inclusive, also those below the oldest readable version.

        Raises NoSuchLogError if the log was deleted meanwhile; ConfigError for a version whose record was vacuumed.
        """
        return self._versions(name, uid, range(first, last + 1))

    def commits(self, name: str, uid: str, first: int, last: int) -> Iterator[tuple[LogVersion, list[Page]]]:
        """Each commit from ``first`` to ``last``, inclusive, with its pages. Raises as ``versions``."""
        paths = self._names.paths(uid)
        for numbers in chunks(range(first, last + 1), READS_AT_ONCE):
            commits = list(self._versions(name, uid, numbers))
            pages = self._records(name, uid, _pages_of(name, paths, commits), Page.decode)
            for commit in commits:
                yield commit, [next(pages) for _ in range(commit.pages)]

    def schema(self, name: str, uid: str, schema_id: int) -> dict[str, object]:
        """A schema's parsed JSON."""
        wanted = [_Wanted(f"schema {schema_id} of log '{name}'", self._names.paths(uid).schema(schema_id))]
        return next(self._records(name, uid, wanted, decode_schema))

    def end_of(self, metadata: LedgerMetadata, content: Content | None) -> CommittedLedger:
        """A CLOSED ledger that a leader of a log with this content wrote, as a version records it.

        Its rows are counted at its bookies. Raises BookieUnavailableError, CorruptionError.
        """
        end = CommittedLedger.of_entries(metadata)
        if content is not Content.ROWS or end.last_entry_id == NO_ENTRY:
            return end
        rows = self._counted.get(end.ledger_id)
        if rows is None:
            assert self._count_rows is not None, "a log of rows is led only by clients that count rows"
            while len(self._counted) >= _KEPT_COUNTS:
                self._counted.pop(next(iter(self._counted)), None)
            rows = self._counted[end.ledger_id] = self._count_rows(metadata)
        return replace(end, rows=rows)

    def version_at(self, name: str, uid: str, time_ms: int, head: Head | None = None) -> int:
        """The newest version that was committed at or before ``time_ms`` (since 1970); 0 if all are later.

        ``head`` is where the log stands, if that is known. Raises NoSuchLogError; ConfigError if the log no longer keeps that
        version.
        """
        head = head or self._names.head(name, uid)
        if time_ms >= head.time_ms:
            return head.version
        low, high = max(head.oldest_version, 1) - 1, head.version  # low: in time, or unknown; high: committed too late
        while high - low > 1:
            probes = _probes(low, high)
            times = [one.time_ms for one in self._versions(name, uid, probes)]
            late = next((place for place, one in enumerate(times) if one > time_ms), len(times))
            low, high = (probes[late - 1] if late else low), (probes[late] if late < len(probes) else high)
        if low < head.oldest_version:
            time = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
            raise _too_old(name, head, "the version at the time", time)
        return low

    def _versions(self, name: str, uid: str, numbers: Sequence[int]) -> Iterator[LogVersion]:
        paths = self._names.paths(uid)
        wanted = (_Wanted(f"version {n} of log '{name}'", paths.version(n), n) for n in numbers)
        return self._records(name, uid, wanted, LogVersion.decode)

    def _listing(self, name: str, uid: str, head: Head, at: LogVersion) -> Listing:
        for _ in range(_VACUUM_TRIES):
            try:
                return self._folded(name, uid, head, at)
            except CheckpointGoneError:
                head = self._names.head(name, uid)
                check_version(name, head, at.version)
        raise CorruptionError(f"a checkpoint of log '{name}'", "some of its pages are missing from the metadata store")

    def _folded(self, name: str, uid: str, head: Head, at: LogVersion) -> Listing:
        checkpoint = self._checkpoints.newest_up_to(name, uid, at.version, at.base_version, head.oldest_version)
        if checkpoint is None and head.oldest_version > at.base_version:
            raise CheckpointGoneError(head.oldest_version)
        start = Listing() if checkpoint is None else self._checkpoints.listing(name, uid, checkpoint)
        below = max(at.base_version, 1) - 1 if checkpoint is None else checkpoint.version
        listing = self.advanced(name, uid, (below, start), at.version)
        if Totals.of(listing.closed) != at.total:
            raise CorruptionError(f"version {at.version} of log '{name}'", "its totals are not those of the ledgers it lists")
        return listing

    def _records(
        self, name: str, uid: str, wanted: Iterable[_Wanted], decode: Callable[[str, bytes], _Record]
    ) -> Iterator[_Record]:
        for some in _batches(wanted):
            values = self._store.get_many([one.path for one in some])
            for one, value in zip(some, values, strict=True):
                if value is None:
                    raise self._missing(name, uid, one)
                yield decode(one.what, value.value)

    def _missing(self, name: str, uid: str, wanted: _Wanted) -> Exception:
        head = self._names.head(name, uid)  # raises NoSuchLogError if the log was deleted under this reader
        if wanted.version is not None and wanted.version < head.oldest_record:
            return _too_old(name, head, "version", wanted.version)
        return CorruptionError(wanted.what, "it is missing from the metadata store")


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A record to read: what errors call it, and the version that it belongs to."""

    what: str
    path: str
    version: int | None = None
    nbytes: int = 1000
    """Estimated size."""


def check_version(name: str, head: Head, version: int | None) -> None:
    """Raises ConfigError for a version that does not exist, or that the log no longer keeps."""
    if version is None:
        return
    there = f"log '{name}' has the versions {head.oldest_version} to {head.version}"
    if type(version) is not int:
        raise ConfigError("versionAsOf", version, f"it must be a whole number, and {there}")
    if not 0 <= version <= head.version:
        raise ConfigError("versionAsOf", version, there)
    if version < head.oldest_version:
        raise _too_old(name, head, "versionAsOf", version)


def _too_old(name: str, head: Head, what: str, value: int | str) -> ConfigError:
    kept = (
        f"the oldest version of log '{name}' that can be read is {head.oldest_version}: it keeps versions for "
        f"{head.retention.version_retention_s} s after they were replaced ('bk-spark log set NAME' changes that for newer ones)"
    )
    return ConfigError(what, value, kept)


def _probes(low: int, high: int) -> list[int]:
    """Versions between ``low`` and ``high``, both excluded, evenly spread."""
    count = min(_PROBES_AT_ONCE, high - low - 1)
    return [low + (high - low) * (place + 1) // (count + 1) for place in range(count)]


def _batches(wanted: Iterable[_Wanted]) -> Iterator[list[_Wanted]]:
    """In order, each bounded by number and by bytes."""
    batch: list[_Wanted] = []
    nbytes = 0
    for one in wanted:
        if batch and (len(batch) == READS_AT_ONCE or nbytes + one.nbytes > _BYTES_AT_ONCE):
            yield batch
            batch, nbytes = [], 0
        batch.append(one)
        nbytes += one.nbytes
    if batch:
        yield batch


def _pages_of(name: str, paths: LogPaths, commits: Iterable[LogVersion]) -> Iterator[_Wanted]:
    for commit in commits:
        ledgers = min(max(commit.added.ledgers, commit.removed.ledgers), LEDGERS_PER_PAGE)
        for index in range(commit.pages):
            what = f"page {index} of version {commit.version} of log '{name}'"
            path = paths.job(commit.job_id).page(index)
            yield _Wanted(what, path, commit.version, 100 + ledgers * _BYTES_PER_LEDGER)
