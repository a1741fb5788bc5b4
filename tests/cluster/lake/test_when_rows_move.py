"""When rows come into the table, and when ledgers leave bookies. Ref: docs/guide/lake.md."""

from __future__ import annotations

import time
from dataclasses import replace

import pyarrow as pa
import pytest

from bk_spark.lake.tier_log import Tiering, TierReport
from bk_spark.log.leader import tier_rolls
from tests.cluster.lake.conftest import TieredLog

PATIENCE_S = 60.0


def due(tiered: TieredLog) -> TierReport:
    """What a server does now."""
    return Tiering(tiered.client.log_opener(tiered.log.name, tiered.log.uid)).run_due()


def append(tiered: TieredLog, first: int) -> None:
    tiered.log.append_rows(pa.table({"id": range(first, first + 100)}), compression="none")


def test_the_rows_of_a_leader_come_into_the_table_while_it_leads(tiered: TieredLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier_rolls, "LEAST_S", 0.2)
    with tiered.log.open_row_writer(pa.schema([("id", pa.int64())])) as writer:
        tiered.log.set_tier(replace(tiered.tier, tier_after_s=0))
        writer.append({"id": 1})
        deadline = time.monotonic() + PATIENCE_S
        while due(tiered).tiered.rows < 1:
            assert time.monotonic() < deadline, "the leader did not roll its ledger for the tier"
        assert tiered.in_table().to_pydict() == {"id": [1]}
        writer.append({"id": 2})
    tiered.run()
    assert tiered.in_table().to_pydict() == {"id": [1, 2]}


def test_rows_are_due_once_enough_bytes_wait_and_no_sooner(tiered: TieredLog) -> None:
    append(tiered, 0)
    length = tiered.log.ledgers()[0].length
    tiered.log.set_tier(replace(tiered.tier, tier_after_s=100_000, tier_after_bytes=2 * length))
    assert due(tiered).tiered.rows == 0
    append(tiered, 100)
    assert due(tiered).tiered.rows == 200


def test_the_oldest_ledgers_leave_bookies_while_more_bytes_stay_than_the_settings_say(tiered: TieredLog) -> None:
    tiered.log.set_tier(replace(tiered.tier, keep_on_bookies_s=100_000))
    for number in range(4):
        append(tiered, 100 * number)
        tiered.run()
    before = tiered.log.read_rows().read_all()
    assert tiered.on_bookies() == 4
    length = tiered.log.ledgers()[0].length
    tiered.log.set_tier(replace(tiered.tier, keep_on_bookies_s=100_000, keep_on_bookies_bytes=2 * length))
    assert tiered.run().released.ledgers == 2
    assert tiered.on_bookies() == 2
    assert tiered.log.read_rows().read_all() == before
