from __future__ import annotations

import json

import pytest

from bk_spark.client.log_layout import (
    LEDGERS_PER_PAGE,
    ApplicationState,
    CommitKind,
    CommittedLedger,
    Content,
    Head,
    JobState,
    LogVersion,
    Page,
    Totals,
    decode_name,
    decode_schema,
    encode_name,
    encode_schema,
    pages_of,
)
from bk_spark.client.log_paths import LogPaths
from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError
from bk_spark.metadata_store import MAX_VALUE_BYTES

HEAD = Head("orders", 7, 123, Content.ROWS, 2, 3, 5, Totals(4, 50, 600))
VERSION = LogVersion(
    7, 123, CommitKind.REPLACE, Content.ROWS, 2, 5, ("query", 9), "j" * 32, 1, Totals(1, 2, 3), 4, Totals(4, 50, 600)
)
PAGE = Page((CommittedLedger(1, -1, 0, 0), CommittedLedger(9, 99, 1000, 500)), (3, 4))
RECORDS = [HEAD, Head("empty"), VERSION, PAGE, JobState(), JobState("a" * 32, "b" * 32, 7), ApplicationState("query", 9, 7)]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_every_record_is_read_back_as_it_was_written(record):
    assert type(record).decode("it", record.encode()) == record


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_every_record_is_json_with_sorted_keys_and_a_format(record):
    pairs = json.loads(record.encode(), object_pairs_hook=list)
    assert [key for key, _ in pairs] == sorted(key for key, _ in pairs)
    assert ["format", 1] in [list(pair) for pair in pairs]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_newer_format_is_refused_by_name_even_if_all_else_is_unknown(record):
    with pytest.raises(FormatVersionError, match="the head has format version 2, this bk_spark reads up to version 1"):
        type(record).decode("the head", b'{"format":2,"shape":"round"}')


@pytest.mark.parametrize("damage", [b"", b"\xff", b"{}", b'{"format":1}', b"[1]", b'{"format":"1"}', b'{"format":0}', b"7"])
@pytest.mark.parametrize("record", RECORDS[2:], ids=lambda record: type(record).__name__)
def test_damage_is_reported_and_never_read_as_something(record, damage):
    with pytest.raises(CorruptionError, match="the record is damaged"):
        type(record).decode("the record", damage)


def test_names_and_schemas_are_read_back():
    assert decode_name("it", encode_name("ab" * 16)) == "ab" * 16
    assert decode_schema("it", encode_schema("it", {"type": "struct", "fields": []})) == {"type": "struct", "fields": []}


def test_a_schema_above_the_largest_value_is_refused():
    fields = [{"name": "c" * 100, "type": "long"} for _ in range(5000)]
    with pytest.raises(ConfigError, match=r"the schema of log 'x' is '\d+ bytes long': the maximum is 524288"):
        encode_schema("the schema of log 'x'", {"type": "struct", "fields": fields})


def test_a_full_page_of_the_largest_numbers_fits_into_one_value():
    largest = CommittedLedger(9_999_999_999, 2**63 - 1, 2**63 - 1, 2**63 - 1)
    pages = pages_of([largest] * (LEDGERS_PER_PAGE + 1), [9_999_999_999] * LEDGERS_PER_PAGE)
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
