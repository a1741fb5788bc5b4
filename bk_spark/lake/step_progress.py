"""Tells how far a step of a tier is, for who waits for it, and counts what was done (telemetry/metrics.py)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import pyarrow as pa

from bk_spark.config import MIB
from bk_spark.log.stored.tier_records import DataFile, TierSection, TierStep
from bk_spark.log.stored.values import CommittedLedger, Totals
from bk_spark.progress import Progress
from bk_spark.telemetry import metrics


class Copying:
    """The rows of the ledgers that a step adds, as they are copied. ``progress`` gets rows; its text says the payload bytes."""

    def __init__(self, ledgers: Sequence[CommittedLedger], progress: Progress) -> None:
        self._all = Totals.of(ledgers)
        self._done = Totals()
        self._progress = progress

    def told(self, ledger: CommittedLedger, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All rows of one ledger, each batch told once it was taken. Rows are taken for equally long."""
        copied = 0
        for batch in rows:
            yield batch
            copied += batch.num_rows
            self._tell(Totals(0, copied, ledger.length * copied // max(ledger.rows, copied)))
        self._done += Totals.of([ledger])
        self._tell(Totals())

    def _tell(self, more: Totals) -> None:
        now = self._done + more
        what = f"copied {now.length / MIB:,.1f} of {self._all.length / MIB:,.1f} MiB, rows"
        self._progress(what, now.rows, self._all.rows)


class ReadingBack:
    """Files, as they are read back. ``progress`` gets their bytes."""

    def __init__(self, files: Sequence[DataFile], progress: Progress) -> None:
        self._total = sum(one.size for one in files)
        self._done = 0
        self._progress = progress

    def told(self, files: Iterable[DataFile]) -> Iterator[DataFile]:
        """Some of the files, each told once it was read."""
        for file in files:
            yield file
            self._done += file.size
            self._progress("reading files back, bytes", self._done, self._total)


def count_step(step: TierStep) -> None:
    """It is done."""
    added = Totals.of(step.add)
    metrics.TIER_STEPS.inc()
    metrics.TIERED_LEDGERS.inc(added.ledgers)
    metrics.TIERED_ROWS.inc(added.rows)
    metrics.TIERED_BYTES.inc(added.length)


def count_files(files: Sequence[DataFile]) -> None:
    """They were written and proved."""
    metrics.TIER_FILES.inc(len(files))
    metrics.TIER_FILE_BYTES.inc(sum(one.size for one in files))


def count_release(section: TierSection, ledger_ids: Collection[int]) -> None:
    """These ledgers of the section were deleted from bookies."""
    gone = Totals.of([one.listed for one in section.ledgers if one.ledger_id in ledger_ids])
    metrics.TIER_RELEASED.inc(gone.ledgers)
    metrics.TIER_RELEASED_BYTES.inc(gone.length)
