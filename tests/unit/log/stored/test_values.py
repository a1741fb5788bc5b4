from __future__ import annotations

import json

import pytest

from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError
from bk_spark.log.stored.checkpoint import CheckpointState
from bk_spark.log.stored.names import decode_name, encode_name
from bk_spark.log.stored.paths import LogPaths
from bk_spark.log.stored.schema import decode_schema, encode_schema
from bk_spark.log.stored.values import (
    LEDGERS_PER_PAGE,
    ApplicationState,
    CommitKind,
    CommittedLedger,
    Content,
    Head,
    JobState,
    LogVersion,
    OpenLedger,
    Page,
    Retention,
    Totals,
    WriterState,
    pages_of,
)
from bk_spark.metadata.store import MAX_VALUE_BYTES

HEAD = Head(
    "orders",
    7,
    123,
    Content.ROWS,
    2,
    3,
    5,
    Totals(4, 50, 600),
    oldest_version=3,
    vacuumed_version=2,
    oldest_record=1,
    replaced_version=6,
    end_row=70,
    writer=WriterState(4, (OpenLedger(8, 6), OpenLedger(9, 7))),
    retention=Retention(60, None, 10**12),
)
VERSION = LogVersion(
    version=7,
    time_ms=123,
    kind=CommitKind.REPLACE,
    content=Content.ROWS,
    schema_id=2,
    base_version=5,
    application=("query", 9),
    job_id="j" * 32,
    pages=1,
    added=Totals(1, 2, 3),
    removed=Totals(4, 5, 6),
    total=Totals(4, 50, 600),
    replaced_version=7,
    end_row=70,
    epoch=4,
    opened=9,
    closed=(CommittedLedger(8, 4, 500, 5),),
)
PAGE = Page((CommittedLedger(1, -1, 0, 0), CommittedLedger(9, 99, 1000, 500)), (3, 4))
RECORDS = [HEAD, Head("empty"), VERSION, PAGE, JobState(), JobState("a" * 32, "b" * 32, 7), ApplicationState("query", 9, 7, 3)]
RECORDS.append(CheckpointState(7, 20, (OpenLedger(8, 6),)))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_every_record_is_read_back_as_it_was_written(record):
    assert type(record).decode("it", record.encode()) == record


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_every_record_is_json_with_sorted_keys_and_a_format(record):
    pairs = json.loads(record.encode(), object_pairs_hook=list)
    assert [key for key, _ in pairs] == sorted(key for key, _ in pairs)
    assert ["format", 2] in [list(pair) for pair in pairs]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_newer_format_is_refused_by_name_even_if_all_else_is_unknown(record):
    with pytest.raises(FormatVersionError, match="the head has format version 8, this bk_spark reads up to version 7"):
        type(record).decode("the head", b'{"format":8,"shape":"round"}')


@pytest.mark.parametrize("damage", [b"", b"\xff", b"{}", b'{"format":2}', b"[1]", b'{"format":"2"}', b'{"format":1}', b"7"])
@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_damage_is_reported_and_never_read_as_something(record, damage):
    with pytest.raises(CorruptionError, match="the record is damaged"):
        type(record).decode("the record", damage)


def test_names_and_schemas_are_read_back():
    assert decode_name("it", encode_name("ab" * 16)) == "ab" * 16
    assert decode_schema("it", encode_schema("it", {"type": "struct", "fields": []})) == {"type": "struct", "fields": []}


def test_a_schema_above_the_largest_value_is_refused():
    fields = [{"name": "c" * 100, "type": "long"} for _ in range(5000)]
    with pytest.raises(ConfigError, match=r"the schema of log 'x' is \d+ bytes long: the maximum is 524288"):
        encode_schema("the schema of log 'x'", {"type": "struct", "fields": fields})


def test_a_full_page_of_the_largest_numbers_fits_into_one_value():
    largest = CommittedLedger(*[2**63 - 1] * 4)
    pages = pages_of([largest] * (LEDGERS_PER_PAGE + 1), [2**63 - 1] * LEDGERS_PER_PAGE)
    assert [len(page.ledgers) for page in pages] == [LEDGERS_PER_PAGE, 1]
    assert len(pages[0].encode()) <= MAX_VALUE_BYTES


def test_pages_hold_both_lists_in_order():
    ledgers = [CommittedLedger(i, 0, 1, 1) for i in range(LEDGERS_PER_PAGE + 7)]
    pages = pages_of(ledgers, [1, 2, 3])
    assert [one for page in pages for one in page.ledgers] == ledgers
    assert [one for page in pages for one in page.removed] == [1, 2, 3]
    assert pages_of([], []) == []


@pytest.mark.parametrize(
    "numbers", [(-1, 0, 0, 0), (1, -2, 0, 0), (1, 0, -1, 0), (1, 0, 0, 2**63), (1, 0, 0, 1.0), (True, 0, 0, 0)]
)
def test_a_committed_ledger_cannot_be_built_with_impossible_numbers(numbers):
    with pytest.raises(ConfigError, match="it must be an integer from"):
        CommittedLedger(*numbers)


def test_no_directory_gets_more_than_ten_thousand_children():
    paths = LogPaths("/l/bk_spark/logs/data/u")
    assert paths.version(12_345) == "/l/bk_spark/logs/data/u/versions/12/12345"
    assert paths.job("j").ledger(4_321_000).split("/")[-3:] == ["ledgers", "4321", "4321000"]
    assert len(paths.application("query").split("/")[-2]) == len(paths.job_bucket("j").split("/")[-1]) == 2


def test_the_first_row_is_where_truncation_has_come_to():
    assert HEAD.first_row == 20


@pytest.mark.parametrize("numbers", [(-1,), (None,), (1, -1), (1, 1.5), (1, None, True), (1, None, 2**63)])
def test_a_retention_cannot_be_built_with_impossible_numbers(numbers):
    with pytest.raises(ConfigError, match=r"retention.* it must be an integer from 0"):
        Retention(*numbers)


def test_checkpoints_stand_below_a_directory_of_a_thousand():
    paths = LogPaths("/l/bk_spark/logs/data/u")
    assert paths.checkpoint_page(3_141_000, 7) == "/l/bk_spark/logs/data/u/checkpoints/3/3141000/7"
