"""How records say something of lanes, and that those of logs without keys stay as they were."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bk_spark.errors import ConfigError, CorruptionError
from bk_spark.log.stored.lanes import PLAIN, Lanes
from bk_spark.log.stored.values import (
    LEDGERS_PER_PAGE,
    LEDGERS_PER_PAGE_OF_LANES,
    CommittedLedger,
    Head,
    LogVersion,
    Page,
    pages_of,
)
from bk_spark.metadata.store import MAX_VALUE_BYTES
from bk_spark.rows.lane_limits import MAX_LANES
from tests.unit.log.stored.test_values import HEAD, PAGE, VERSION

LANES = Lanes(("customer", "day"), ("string", "date"), 8)
OF_LANES = [replace(HEAD, lanes=LANES), replace(VERSION, lanes=LANES), Page((CommittedLedger(1, 2, 3, 4, 5),), ())]

PLAIN_RECORDS = {
    HEAD: b'{"base_version":5,"content":"rows","deleting":false,"end_row":70,"format":2,"name":"orders","oldest_record":1,'
    b'"oldest_version":3,"replaced_version":6,"retention":{"retention_bytes":1000000000000,"retention_s":null,'
    b'"version_retention_s":60},"schema_count":3,"schema_id":2,"time_ms":123,"total":[4,50,600],"vacuumed_version":2,'
    b'"version":7,"writer":{"epoch":4,"open":[[8,6],[9,7]]}}',
    VERSION: b'{"added":[1,2,3],"application":["query",9],"base_version":5,"closed":[[8,4,500,5]],"content":"rows",'
    b'"end_row":70,"epoch":4,"format":2,"job":"jjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjj","kind":"replace","opened":9,"pages":1,"removed":[4,5,6],'
    b'"replaced_version":7,"schema_id":2,"time_ms":123,"total":[4,50,600],"version":7}',
    PAGE: b'{"format":2,"ledgers":[[1,-1,0,0],[9,99,1000,500]],"removed":[3,4]}',
}
"""As the release before lanes wrote them."""


@pytest.mark.parametrize("record", PLAIN_RECORDS, ids=lambda record: type(record).__name__)
def test_records_of_logs_without_keys_are_to_the_byte_what_they_were(record) -> None:
    assert record.encode() == PLAIN_RECORDS[record]
    assert type(record).decode("it", PLAIN_RECORDS[record]) == record


@pytest.mark.parametrize("record", OF_LANES, ids=lambda record: type(record).__name__)
def test_a_record_that_says_something_of_lanes_has_a_format_that_older_programs_refuse(record) -> None:
    assert json.loads(record.encode())["format"] == 3
    assert type(record).decode("it", record.encode()) == record


def test_lanes_are_written_as_documented() -> None:
    assert json.loads(OF_LANES[0].encode())["lanes"] == {
        "columns": ["customer", "day"],
        "count": 8,
        "kinds": ["string", "date"],
    }
    assert json.loads(OF_LANES[2].encode())["ledgers"] == [[1, 2, 3, 4, 5]]


@pytest.mark.parametrize(
    "lanes",
    [
        b'{"columns":["a"],"count":8}',
        b'{"columns":["a"],"count":8,"kinds":[]}',
        b'{"columns":["a"],"count":1,"kinds":["string"]}',
        b'{"columns":[],"count":8,"kinds":[]}',
        b'{"columns":["a"],"count":257,"kinds":["string"]}',
        b'{"columns":["a"],"count":"8","kinds":["string"]}',
        b"[]",
    ],
)
def test_damaged_lanes_are_reported(lanes: bytes) -> None:
    with pytest.raises(CorruptionError, match="the head is damaged"):
        Head.decode("the head", Head("orders").encode().replace(b"{", b'{"lanes":' + lanes + b",", 1))


@pytest.mark.parametrize(
    "numbers", [b"[1,2,3,4,256]", b"[1,2,3,4,-1]", b"[1,2,3,4,5,6,7]", b"[1,2,3,4,5,-1]", b"[1,2,3,4,1.0]"]
)
def test_a_ledger_of_an_impossible_lane_is_damage(numbers: bytes) -> None:
    with pytest.raises(CorruptionError, match="the page is damaged"):
        Page.decode("the page", b'{"format":3,"ledgers":[' + numbers + b'],"removed":[]}')


def test_a_full_page_of_lanes_fits_into_one_value() -> None:
    largest = CommittedLedger(*[2**63 - 1] * 4, MAX_LANES - 1)
    ledgers, removed = [largest] * (LEDGERS_PER_PAGE_OF_LANES + 1), [2**63 - 1] * LEDGERS_PER_PAGE
    pages = pages_of(ledgers, removed)
    assert [len(page.ledgers) for page in pages] == [LEDGERS_PER_PAGE_OF_LANES, 1]
    assert len(pages[0].encode()) <= MAX_VALUE_BYTES
    assert [one for page in pages for one in page.removed] == removed


@pytest.mark.parametrize("given", [(("a",), ("string",), 1), ((), (), 2), (("a",), (), 2), (("a",) * 17, ("date",) * 17, 2)])
def test_lanes_that_make_no_sense_cannot_be_built(given) -> None:
    with pytest.raises(ConfigError, match="the list of key columns"):
        Lanes(*given)


@pytest.mark.parametrize("count", [0, 257, True, 2.0])
def test_there_are_1_to_256_lanes(count) -> None:
    with pytest.raises(ConfigError, match=r"the number of lanes is .*: it must be a whole number from 1 to 256"):
        Lanes(("a",), ("string",), count)


def test_a_version_without_lanes_is_of_one_lane() -> None:
    assert LogVersion.decode("it", VERSION.encode()).lanes == PLAIN
    assert (str(PLAIN), str(LANES)) == ("one lane, without a key", "8 lanes by customer, day")
