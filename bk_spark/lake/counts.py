"""Counts what tierers of this process did (telemetry/metrics.py), once for each step, attempt and release."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bk_spark.log.stored.tier_records import DataFile, TierSection, TierStep
from bk_spark.log.stored.values import Totals
from bk_spark.telemetry import metrics


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
