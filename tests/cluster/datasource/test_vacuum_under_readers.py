"""A vacuum between the moment at which a reader looked at a log and that at which it plans. Without Spark, on real bookies.

Ref: docs/rules.md, log rules 6 and 8.
"""

from __future__ import annotations

import json

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.read.followed_log import FollowedLog
from bk_spark.log.stored.values import Head, Retention
from tests.cluster.datasource.direct import Direct, micro_batch, micro_batches
from tests.cluster.datasource.streams import compact
from tests.unit.datasource.batches import numbers


def vacuum(bookkeeper: BookKeeper, log: str) -> None:
    """Delete all that is not of the newest version."""
    bookkeeper.logs.set_retention(log, bookkeeper.logs.names.uid(log), Retention(version_retention_s=0))
    bookkeeper.vacuum_log(log)


@pytest.mark.parametrize("is_newer", [False, True])
def test_a_long_run_of_available_now_is_not_disturbed_by_a_compaction_and_a_vacuum(
    direct: Direct, bookkeeper: BookKeeper, log: str, is_newer: bool
) -> None:
    """Log rules 6 and 8: what was fixed as the end of the run is of a version that is vacuumed meanwhile."""
    for first in range(0, 12, 2):
        direct.write(log, numbers(first, first + 1), maxRowsPerEntry=1)
    stream = direct.stream(log, startingOffsets="earliest", maxRowsPerTrigger=4)
    batches = micro_batches(stream)
    assert next(batches)[2] == [0, 1, 2, 3]
    compact(bookkeeper, log, first=2)
    if is_newer:
        direct.write(log, numbers(12))
    vacuum(bookkeeper, log)
    read = [rows for _, _, rows in batches]
    assert read == [[4, 5, 6, 7], [8, 9, 10, 11], *([[12]] if is_newer else [])]


def test_a_batch_read_between_offsets_looks_again_after_a_vacuum(
    direct: Direct, bookkeeper: BookKeeper, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in range(4):
        direct.write(log, numbers(value))
    stream = direct.stream(log)
    end = json.dumps(stream.initialOffset())
    reader = direct.reader(log, startingTimestamp=10**12, endingOffsets=end)
    planned = FollowedLog.planned

    def vacuumed_before(self: FollowedLog, head: Head, plan: object) -> object:
        monkeypatch.undo()
        vacuum(bookkeeper, log)
        return planned(self, head, plan)  # type: ignore[arg-type]

    monkeypatch.setattr(FollowedLog, "planned", vacuumed_before)
    found = [row["id"] for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert found == [0, 1, 2, 3]
    assert micro_batch(stream, json.loads(end), json.loads(end)) == []
