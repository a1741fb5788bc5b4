"""Where a batch read starts and ends: versions, times, and the offsets that streams record. Without Spark, on real bookies."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import ClientConfig
from bk_spark.datasource.options import parse_options
from bk_spark.datasource.read.loaded_log import LoadedLog
from bk_spark.datasource.read.read_task import Reading
from bk_spark.datasource.read.reader import portions_of
from bk_spark.datasource.spark_schema import ENTRIES
from bk_spark.errors import ConfigError, DataLossError, LedgerClosedError, LedgerFencedError, LogReplacedError
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.stored.snapshot import LogSnapshot
from bk_spark.log.stored.values import CommittedLedger, Content, OpenLedger
from bk_spark.metadata.ledger_metadata import DigestType
from tests.cluster.datasource.direct import Direct, micro_batches
from tests.unit.datasource.batches import numbers, wait_until

TALKING = ClientConfig(explicit_lac_s=3600.0)
"""A writer that tells its readers only by its next entry."""


@pytest.fixture
def talking(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_uri, TALKING) as client:
        yield client


def text(offset: dict[str, Any]) -> str:
    return json.dumps(offset)


def times(bookkeeper: BookKeeper, log: str) -> list[int]:
    return [version.time_ms for version in bookkeeper.logs.reader.all_versions(log)]


def write_apart(direct: Direct, bookkeeper: BookKeeper, log: str, *values: int) -> None:
    """Commits of one row each, no two in one millisecond."""
    for value in values:
        direct.write(log, numbers(value))
        committed_ms = times(bookkeeper, log)[-1]
        wait_until(lambda at=committed_ms: time.time() * 1000 > at + 1)


def test_a_batch_read_between_a_streams_offsets_gives_the_rows_of_its_micro_batches(direct, log) -> None:
    """Log rule 6: offsets are places in the order of commits, half-open."""
    for start in range(0, 60, 20):
        direct.write(log, numbers(*range(start, start + 10)), numbers(*range(start + 10, start + 20)), maxRowsPerEntry=3)
    batches = list(micro_batches(direct.stream(log, startingOffsets="earliest", maxRowsPerTrigger=7)))
    assert len(batches) > 5
    assert [row for _, _, rows in batches for row in rows] == list(range(60))
    for start, end, rows in batches:
        assert direct.column(log, startingOffsets=text(start), endingOffsets=text(end)) == rows
    middle = batches[3][1]
    assert direct.column(log, endingOffsets=text(middle)) + direct.column(log, startingOffsets=text(middle)) == list(range(60))
    assert direct.column(log, startingOffsets=text(middle), endingOffsets=text(middle)) == []


def test_offsets_within_an_open_ledger_are_read_too(direct, log, talking: BookKeeper) -> None:
    with talking.open_log(log, create=True).open_writer() as writer:
        for value in b"abcd":
            writer.append(bytes([value]))
        stream = direct.stream(log, content="entries", startingOffsets="earliest", maxRowsPerTrigger=2)
        batches = list(micro_batches(stream, "payload"))
        assert [rows for _, _, rows in batches] == [[b"a", b"b"], [b"c"]]
        for start, end, rows in batches:
            given = {"startingOffsets": text(start), "endingOffsets": text(end), "content": "entries"}
            assert direct.column(log, "payload", **given) == rows
        after = {"startingOffsets": text(batches[0][1]), "content": "entries"}
        assert direct.column(log, "payload", **after) == [b"c"]


def test_an_open_ledger_of_a_log_is_read_as_far_as_it_is_confirmed(direct, log, talking: BookKeeper) -> None:
    """Log rule 2. Its writer goes on undisturbed."""
    direct.write(log, pa.record_batch({"payload": pa.array([b"closed"])}), content="entries")
    with talking.open_log(log).open_writer() as writer:
        for value in b"abc":
            writer.append(bytes([value]))
        assert direct.column(log, "payload", content="entries") == [b"closed", b"a", b"b"]
        assert direct.column(log, "payload", content="entries", startingOffsets="earliest") == [b"closed", b"a", b"b"]
        writer.append(b"d")
        assert direct.column(log, "payload", content="entries") == [b"closed", b"a", b"b", b"c"]


def test_with_recover_the_open_ledger_is_closed_and_read_to_its_end(direct, log, talking: BookKeeper) -> None:
    writer = talking.open_log(log, create=True).open_writer()
    for value in b"abc":
        writer.append(bytes([value]))
    assert direct.column(log, "payload", content="entries", recover=True) == [b"a", b"b", b"c"]
    with pytest.raises((LedgerFencedError, LedgerClosedError)):
        writer.append(b"d")
    with pytest.raises((LedgerFencedError, LedgerClosedError)):
        writer.close()


class OpenHandle:
    """A ledger that is read up to entry 4, closed or not."""

    length = 50
    last_add_confirmed = 4

    def __init__(self, ledger_id: int, is_closed: bool) -> None:
        self.ledger_id = ledger_id
        self.is_closed = is_closed
        self.metadata = SimpleNamespace(digest_type=DigestType.CRC32C)

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"length": [10]})


@pytest.mark.parametrize(("closed", "expected"), [((), [3, 5]), ((5,), [3, 5, 6]), ((5, 6), [3, 5, 6]), ((6,), [3, 5])])
def test_no_read_passes_a_ledger_that_is_not_closed(closed, expected) -> None:
    """Log rules 2 and 3: behind ledger 5 stands 6, while 5 may still grow."""
    listed = LogSnapshot(
        "orders",
        "u",
        2,
        0,
        Content.ENTRIES,
        None,
        None,
        (CommittedLedger(3, 0, 10, 1),),
        (OpenLedger(5, 1), OpenLedger(6, 2)),
    )
    bookkeeper = SimpleNamespace(
        logs=SimpleNamespace(reader=SimpleNamespace(snapshot=lambda name, version: listed)),
        open_ledger=lambda ledger_id, password, recover: OpenHandle(ledger_id, ledger_id in closed),
        existing_ledgers=lambda ids: [],
    )
    options = parse_options({"metadata": "zk://x/y", "path": "orders", "content": "entries"}, {})
    parts = portions_of(bookkeeper, Reading(options, ENTRIES), LoadedLog("orders", "u", 2, "entries", None))
    assert [stretch.ledger_id for portion in parts for stretch in portion.stretches] == expected


def test_a_load_ends_at_the_version_that_it_saw_also_between_offsets(direct, log, bookkeeper: BookKeeper) -> None:
    direct.write(log, numbers(1))
    start = text(direct.stream(log, startingOffsets="earliest").initialOffset())
    readers = [direct.reader(log), direct.reader(log, startingOffsets=start), direct.reader(log, startingTimestamp=0)]
    direct.write(log, numbers(2))
    first, _ = bookkeeper.logs.reader.snapshot(log).ledgers
    for reader in readers:
        assert [stretch.ledger_id for portion in reader.partitions() for stretch in portion.value.stretches] == [
            first.ledger_id
        ]


def test_versions_and_times_give_the_log_as_it_stood(direct, log, bookkeeper: BookKeeper) -> None:
    write_apart(direct, bookkeeper, log, 1, 2, 3)
    committed = times(bookkeeper, log)
    assert direct.column(log, versionAsOf=2) == [1, 2]
    assert direct.column(log, timestampAsOf=committed[1]) == [1, 2]
    assert direct.column(log, timestampAsOf=committed[2] - 1) == [1, 2]
    assert direct.column(log, timestampAsOf=committed[2] + 10**9) == [1, 2, 3]
    with pytest.raises(ConfigError, match=r"versionAsOf is 4: log '.*' has the versions 0 to 3"):
        direct.read(log, versionAsOf=4)
    with pytest.raises(ConfigError, match="it holds nothing and has no schema"):
        direct.read(log, timestampAsOf=committed[0] - 1)


def test_a_start_by_time_reads_what_was_committed_at_that_time_or_later(direct, log, bookkeeper: BookKeeper) -> None:
    write_apart(direct, bookkeeper, log, 1, 2, 3)
    committed = times(bookkeeper, log)
    assert direct.column(log, startingTimestamp=committed[1]) == [2, 3]
    assert direct.column(log, startingTimestamp=committed[1] + 1) == [3]
    assert direct.column(log, startingTimestamp=0) == [1, 2, 3]
    assert direct.column(log, startingTimestamp=committed[2] + 10**9) == []
    assert direct.column(log, startingTimestamp=committed[1], versionAsOf=2) == [2]
    assert direct.column(log, startingTimestamp=committed[0], timestampAsOf=committed[1]) == [1, 2]


def test_a_version_is_read_with_the_schema_that_it_had(direct, log) -> None:
    direct.write(log, numbers(1))
    direct.write(log, pa.record_batch({"id": [2], "name": ["x"]}), mergeSchema=True)
    direct.write(log, pa.record_batch({"other": ["y"]}), overwrite=True)
    assert direct.read(log, versionAsOf=1) == [{"id": 1}]
    assert direct.read(log, versionAsOf=2) == [{"id": 1, "name": None}, {"id": 2, "name": "x"}]
    assert direct.read(log) == [{"other": "y"}]
    assert direct.read(log, startingOffsets="earliest", versionAsOf=2) == direct.read(log, versionAsOf=2)


def test_an_overwrite_between_offsets_is_an_error_unless_it_is_to_be_read_or_skipped(direct, log) -> None:
    direct.write(log, numbers(1))
    stream = direct.stream(log, startingOffsets="earliest")
    start = text(stream.initialOffset())
    direct.write(log, numbers(2), overwrite=True)
    direct.write(log, numbers(3))
    with pytest.raises(LogReplacedError, match="version 2"):
        direct.read(log, startingOffsets=start)
    assert direct.column(log, startingOffsets=start, overwrites="read") == [1, 2, 3]
    assert direct.column(log, startingOffsets=start, overwrites="skip") == [1, 3]
    assert direct.column(log) == direct.column(log, startingOffsets="earliest") == [2, 3]


def test_offsets_in_content_that_was_replaced_since_are_still_read(direct, log) -> None:
    for value in (1, 2):
        direct.write(log, numbers(value))
    [(start, end, rows)] = list(micro_batches(direct.stream(log, startingOffsets="earliest")))
    direct.write(log, numbers(3), overwrite=True)
    assert direct.column(log, startingOffsets=text(start), endingOffsets=text(end)) == rows == [1, 2]
    assert direct.column(log, endingOffsets=text(end)) == [1, 2]


def test_an_offset_of_a_deleted_log_is_not_taken_for_one_of_its_name(direct, log, bookkeeper: BookKeeper) -> None:
    direct.write(log, numbers(1))
    offset = text(direct.stream(log, startingOffsets="earliest").initialOffset())
    bookkeeper.open_log(log).delete()
    direct.write(log, numbers(2))
    for option in ("startingOffsets", "endingOffsets"):
        with pytest.raises(ConfigError, match=f"option '{option}'.*it was deleted and made anew"):
            direct.read(log, **{option: offset})


def test_a_stretch_that_was_truncated_is_data_loss_not_an_empty_result(direct, log, bookkeeper: BookKeeper) -> None:
    for value in (1, 2, 3):
        direct.write(log, numbers(value))
    start = text(direct.stream(log, startingOffsets="earliest").initialOffset())
    ledgers = bookkeeper.logs.reader.snapshot(log).ledgers
    bookkeeper.logs.truncate(log, bookkeeper.logs.names.uid(log), ledgers[2].ledger_id)
    with pytest.raises(DataLossError):
        direct.read(log, startingOffsets=start)
    assert direct.column(log, startingOffsets="earliest") == direct.column(log) == [3]


def test_versions_that_the_log_does_not_keep_are_named_and_offsets_in_them_still_read(
    direct, log, bookkeeper: BookKeeper
) -> None:
    for value in (1, 2, 3):
        direct.write(log, numbers(value))
    batches = list(micro_batches(direct.stream(log, startingOffsets="earliest", maxRowsPerTrigger=1)))
    logs, uid = bookkeeper.logs, bookkeeper.logs.names.uid(log)
    logs.write_checkpoint(log, uid, 3)
    logs.names.change_head(log, uid, lambda head: replace(head, oldest_version=3))
    with pytest.raises(ConfigError, match="versionAsOf is 2: the oldest version of log"):
        direct.read(log, versionAsOf=2)
    with pytest.raises(ConfigError, match=r"'endingOffsets' is 1: the oldest one that log .* keeps is 3"):
        direct.read(log, endingOffsets=text(batches[0][1]))
    for start, end, rows in batches[1:]:
        assert direct.column(log, startingOffsets=text(start), endingOffsets=text(end)) == rows


def test_a_start_behind_the_end_that_is_given_with_it_is_refused_not_an_empty_result(direct, log) -> None:
    direct.write(log, *(numbers(place) for place in range(3)), maxRowsPerEntry=1)
    ends = [end for _, end, _ in micro_batches(direct.stream(log, startingOffsets="earliest", maxRowsPerTrigger=1))]
    with pytest.raises(ConfigError, match=r"it lies behind option 'endingOffsets', .*: exchange the two, or give a later end"):
        direct.read(log, startingOffsets=text(ends[1]), endingOffsets=text(ends[0]))
    assert direct.column(log, startingOffsets=text(ends[-1])) == []


def test_an_offset_beyond_the_log_is_refused(direct, log) -> None:
    direct.write(log, numbers(1))
    offset = direct.stream(log, startingOffsets="earliest").initialOffset() | {"version": 9}
    for option in ("startingOffsets", "endingOffsets"):
        with pytest.raises(
            ConfigError, match=f"option '{option}'.*has the versions up to 1: take an offset that this log gave"
        ):
            direct.read(log, **{option: text(offset)})
