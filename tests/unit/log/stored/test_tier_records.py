"""What the metadata store holds of a log's tier. Ref: docs/formats.md, "Tier"."""

from __future__ import annotations

import json

import pytest

from bk_spark.errors import CorruptionError
from bk_spark.lake.plan import MOST_LEDGERS
from bk_spark.log.stored.tier_mark import NO_STEP, StepName, TierMark
from bk_spark.log.stored.tier_records import DataFile, StepAttempt, TieredLedger, TierSection, TierStep
from bk_spark.log.stored.values import CommittedLedger, Head
from bk_spark.metadata.store import MAX_VALUE_BYTES

MARK = TierMark(
    StepName(3, "a" * 32, "b" * 32),
    boundary=8,
    sections=3,
    first=1,
    removed=2,
    released=2,
    cleared=1,
    table_uuid="d" * 36,
    oldest=1,
    vacuumed_version=7,
)
LEDGERS = (CommittedLedger(7, 9, 1000, 10), CommittedLedger(8, 4, 500, 5, lane=2))
TIERED = tuple(TieredLedger(one, f"digest of {one.ledger_id}") for one in LEDGERS)
FILES = (DataFile("data/bk-4-x/0", 4711, (7, 8)),)
STEP = TierStep(
    StepName(4, "c" * 32, ""), LEDGERS, first=1, removed=2, schema_id=5, attempts=(StepAttempt("x", TIERED, FILES),), version=9
)
SECTION = TierSection(TIERED, FILES, 9)


def test_a_head_with_a_tier_is_read_back_and_has_a_format_that_older_releases_refuse() -> None:
    head = Head("orders", tier=MARK)
    assert Head.decode("it", head.encode()) == head
    assert json.loads(head.encode())["format"] == 4
    assert json.loads(Head("orders").encode())["format"] == 2
    assert "tier" not in json.loads(Head("orders").encode())


@pytest.mark.parametrize("record", [STEP, TierStep(NO_STEP, (), 0, 0), SECTION], ids=lambda one: type(one).__name__)
def test_a_record_of_a_tier_is_read_back_as_it_was_written(record: TierStep | TierSection) -> None:
    assert type(record).decode("it", record.encode()) == record


@pytest.mark.parametrize("record", [STEP, SECTION], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("damage", [b"", b"[1]", b'{"format":4}', b'{"format":4,"ledgers":[[1]],"files":[],"name":"1"}'])
def test_damage_is_named(record: TierStep | TierSection, damage: bytes) -> None:
    with pytest.raises(CorruptionError, match="the step is damaged"):
        type(record).decode("the step", damage)


@pytest.mark.parametrize("change", [{"sections": 1}, {"last": "3:x"}, {"released": -1}, {"boundary": "8"}, {"oldest": 4}])
def test_an_impossible_mark_is_damage(change: dict[str, object]) -> None:
    record = json.loads(Head("orders", tier=MARK).encode())
    record["tier"] |= change
    with pytest.raises(CorruptionError, match="the head is damaged"):
        Head.decode("the head", json.dumps(record).encode())


def test_the_largest_step_with_its_attempts_fits_into_one_value() -> None:
    ledgers = tuple(CommittedLedger(2**53 + n, 2**40, 2**50, 2**40, lane=255) for n in range(MOST_LEDGERS))
    tiered = tuple(TieredLedger(one, "d" * 64) for one in ledgers)
    files = tuple(DataFile(f"data/bk-{2**40}-{'a' * 32}/{n}.parquet", 2**40, (one.ledger_id,)) for n, one in enumerate(ledgers))
    attempts = tuple(StepAttempt("a" * 32, tiered, files) for _ in range(4))
    assert len(TierStep(StepName(2**40, "c" * 32, ""), ledgers, 2**40, 2**40, 2**40, attempts).encode()) < MAX_VALUE_BYTES


def test_the_files_of_a_ledger_are_those_that_name_it() -> None:
    assert SECTION.files_of(8) == FILES
    assert SECTION.files_of(9) == ()
