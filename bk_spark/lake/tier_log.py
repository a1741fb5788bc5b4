"""Gives a log a tier, and tiers it: what users call.

tiering = Tiering(opener)       the log's tier, as its settings say
tiering.run()                   tier what is closed, then release what may leave bookies
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from bk_spark.errors import BookKeeperError, ConfigError
from bk_spark.files.file_store import store_with
from bk_spark.lake.begin import begin_tier, check_keeps_rows, check_same_place, set_settings
from bk_spark.lake.columns import UnfitColumnError, table_columns
from bk_spark.lake.data_files import DataFiles, InTurn, TaskRunner
from bk_spark.lake.file_tasks import FileTasks
from bk_spark.lake.partitions import check_partitions
from bk_spark.lake.plan import Due
from bk_spark.lake.row_source import RowSource
from bk_spark.lake.tierer import Tierer
from bk_spark.lake.vacuum import TierVacuum
from bk_spark.log.cleanup.store_clock import StoreTimes
from bk_spark.log.stored.origins import origins
from bk_spark.log.stored.tier_mark import TierMark
from bk_spark.log.stored.tier_settings import Tier
from bk_spark.log.stored.values import CommittedLedger, Totals
from bk_spark.log.tier.opener import LogLedgerOpener
from bk_spark.progress import Progress, no_progress

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TierReport:
    """What one run did."""

    name: str
    tiered: Totals
    """What came into the table."""
    released: Totals
    """What left the bookies."""
    waiting: int
    """Ledgers that are tiered, and stay on bookies for a while."""


def set_tier(opener: LogLedgerOpener, tier: Tier, seen: Tier | None = None) -> None:
    """Create the table, and give the log the tier; or change when its rows are tiered and its ledgers leave bookies.

    ``seen`` are the settings that ``tier`` was made from. Raises ConfigError for a log whose columns the table cannot hold, for
    a table that is not the log's, and for another place than the tier has; MetadataConflictError where the settings are not
    those that were seen any more; StorageError where the catalog does not answer; NoSuchLogError.
    """
    from bk_spark.lake.iceberg import IcebergTable  # pyiceberg is needed from here on, and nowhere else

    name, uid = opener.name, _uid(opener)
    head = opener.logs.names.fresh_head(name, uid)
    check_keeps_rows(head)  # before anything is made that the log then has no use for
    if head.tier is not None:
        check_same_place(name, opener.logs.reader.tier.settings(name, uid), tier)
    source = RowSource(opener)
    columns = source.columns(head.schema_id) if head.version else table_columns(name, pa.schema([]))
    table = IcebergTable(tier, name, uid)
    if head.tier is None:
        check_partitions(tier.partitions, columns)
        table.create(columns)
    state = table.look()
    if state.log_uid != uid or (head.tier is not None and state.uuid != head.tier.table_uuid):
        remedy = "it is not this log's: a table has the rows of one log, give another name"
        raise ConfigError("the table of a tier", tier.table, remedy)
    set_settings(opener.logs, name, uid, tier, seen)
    begin_tier(opener.logs, name, uid, state.uuid)


def drop_table(opener: LogLedgerOpener) -> None:
    """Drop the table of a log's tier, with all its files. May be called again after any error.

    Raises ConfigError for a log without a tier, and for a table that is not the log's; StorageError.
    """
    from bk_spark.lake.iceberg import IcebergTable

    name, uid = opener.name, _uid(opener)
    settings = opener.logs.reader.tier.settings(name, uid)
    table = IcebergTable(settings, name, uid)
    owner = table.owner()
    if owner not in (uid, None):
        raise ConfigError("the table of a tier", settings.table, "it is not this log's: drop it by its catalog")
    if owner == uid:
        table.drop()
    store_with(settings.catalog).delete_folder(_folder(settings, uid))


def _folder(settings: Tier, uid: str) -> str:
    """Of the files of a log's tier: other logs may have the same location."""
    return f"{settings.location}/data/{uid}"


class Tiering:
    """The tier of one log. Any number of processes may run it at once."""

    def __init__(self, opener: LogLedgerOpener, progress: Progress = no_progress, runner: TaskRunner | None = None) -> None:
        """``progress`` is told of each step; ``runner`` writes files and reads them back in the place of this process.

        Raises ConfigError for a log without a tier.
        """
        from bk_spark.lake.iceberg import IcebergTable

        self._logs = opener.logs
        self._name, self._uid = opener.name, _uid(opener)
        self._paths = self._logs.names.paths(self._uid)
        self._settings = self._logs.reader.tier.settings(self._name, self._uid)
        table = IcebergTable(self._settings, self._name, self._uid)
        store, source = store_with(self._settings.catalog), RowSource(opener)
        tasks = runner or InTurn(FileTasks(store, source), progress)
        files = DataFiles(store, _folder(self._settings, self._uid), source, table.identified, tasks, self._settings.partitions)
        self._tierer = Tierer(self._logs, self._name, self._uid, table, files, lambda: uuid.uuid4().hex[:12])
        self._vacuum = TierVacuum(self._logs, self._name, self._uid, table, files)

    def run(self) -> TierReport:
        """Tier all closed ledgers, then release those that have been tiered for as long as the settings say.

        After a vacuum of the log, what no version that can be read needs of the tier is deleted, too.

        May be called again after any error. Raises as ``Tierer.run``, and ``Tierer.release``.
        """
        return self._run(len)

    def run_due(self) -> TierReport:
        """As ``run``, where the rows that are not tiered have waited for as long as the settings say, or are as many."""
        return self._run(lambda waiting: len(waiting) if waiting and self._is_due(waiting) else 0)

    def _run(self, due: Due) -> TierReport:
        first = self._mark().sections
        try:
            while self._tierer.run(due):
                pass
        except UnfitColumnError:
            self._tierer.give_up()  # so that other rows may be tiered, once the log has been overwritten
            raise
        mark = self._mark()
        self._tierer.release(self._due(mark))
        released = self._mark().cleared
        self._vacuum_or_warn()
        waiting = self._totals(released, mark.sections).ledgers
        return TierReport(self._name, self._totals(first, mark.sections), self._totals(mark.cleared, released), waiting)

    def _vacuum_or_warn(self) -> None:
        """What it did not delete harms nobody, and the next run tries again: rows were tiered."""
        try:
            self._vacuum.run(self._oldest_snapshot_ms())
        except BookKeeperError as problem:
            logger.warning("the tier of log '%s' was not vacuumed: %s", self._name, problem)

    def _oldest_snapshot_ms(self) -> int:
        """Snapshots of the table are kept for as long as versions of the log."""
        retention = self._logs.names.fresh_head(self._name, self._uid).retention
        return StoreTimes(self._logs.store, self._logs.znodes).now_ms() - 1000 * retention.version_retention_s

    def _is_due(self, waiting: Sequence[CommittedLedger]) -> bool:
        """By the metadata store's clock. A ledger whose commit has no record any more is older than old versions are kept."""
        most, ledger = self._settings.tier_after_bytes, waiting[0]
        if most is not None and sum(one.length for one in waiting) >= most:
            return True
        head = self._logs.names.head(self._name, self._uid)
        origin = origins(self._logs.reader, head, self._uid, [ledger.ledger_id], head.version).get(ledger.ledger_id)
        if origin is None:
            return True
        times = StoreTimes(self._logs.store, self._logs.znodes)
        [(_, committed_ms)] = times.of_versions(self._paths, origin.version, origin.version)
        return committed_ms <= times.now_ms() - 1000 * self._settings.tier_after_s

    def _due(self, mark: TierMark) -> int:
        """How many first sections have been tiered for so long, or before so many bytes, that they may leave bookies."""
        return max(self._over(mark), self._old(mark))

    def _over(self, mark: TierMark) -> int:
        """Beyond the bytes that may stay."""
        most = self._settings.keep_on_bookies_bytes
        if most is None:
            return mark.cleared
        stays = 0
        for number in reversed(range(mark.cleared, mark.sections)):
            stays += self._totals(number, number + 1).length
            if stays > most:
                return number + 1
        return mark.cleared

    def _old(self, mark: TierMark) -> int:
        before_ms = StoreTimes(self._logs.store, self._logs.znodes).now_ms() - 1000 * self._settings.keep_on_bookies_s
        for number in range(mark.cleared, mark.sections):
            (stored,) = self._logs.store.get_many([self._paths.tier_section(number)])
            if stored is None or stored.modified_ms > before_ms:
                return number
        return mark.sections

    def _totals(self, first: int, beyond: int) -> Totals:
        """Without sections that a vacuum gave up meanwhile."""
        sections = self._logs.reader.tier.sections(self._name, self._uid, range(first, beyond))
        return sum((Totals.of([one.listed for one in section.ledgers]) for section in sections), Totals())

    def _mark(self) -> TierMark:
        mark = self._logs.names.fresh_head(self._name, self._uid).tier
        if mark is None:
            raise ConfigError(
                f"the tier of log '{self._name}'", self._settings.location, "setting it was cut short: set it again"
            )
        return mark


def _uid(opener: LogLedgerOpener) -> str:
    assert opener.uid is not None, "a tier is a log's"
    return opener.uid
