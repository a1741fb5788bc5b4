"""Every option of the table does something: a case for each, which fails if the option is ignored. Without Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import ClientConfig, DigestType
from bk_spark.datasource import connection, source
from bk_spark.datasource.option_table import OPTIONS
from bk_spark.datasource.options import SourceOptions, parse_options
from bk_spark.errors import (
    BookKeeperError,
    ConfigError,
    DataLossError,
    LogReplacedError,
    NoSuchLogError,
    SchemaMismatchError,
    UnauthorizedAccessError,
)
from bk_spark.local.cluster import LocalCluster
from tests.cluster.datasource.direct import Direct
from tests.cluster.datasource.option_cases import World, case
from tests.cluster.datasource.security_cases import CASES
from tests.cluster.datasource.topic_cases import CASES as WITH_TOPICS
from tests.unit.datasource.batches import numbers

TALKING = ClientConfig(explicit_lac_s=3600.0)
"""A writer that tells its readers only by its next entry."""


@pytest.fixture
def world(cluster: LocalCluster, bookkeeper: BookKeeper, log: str) -> World:
    return World(Direct(cluster.metadata_uri), bookkeeper, log)


@pytest.mark.parametrize("option", [option.name for option in OPTIONS])
def test_an_option_does_something(world: World, option: str) -> None:
    assert option in CASES, "an option without a case: it may do nothing, and nobody would notice"
    CASES[option](world)


@pytest.mark.parametrize("option", [option.name for option in OPTIONS])
def test_its_case_fails_where_an_option_is_ignored(world: World, option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def ignoring(options: Mapping[str, str]) -> SourceOptions:
        return parse_options({key: value for key, value in options.items() if key != option.lower()})

    monkeypatch.setattr(source, "parse_options", ignoring)
    with pytest.raises((AssertionError, BookKeeperError, pytest.fail.Exception)):
        CASES[option](world)


def test_every_case_is_of_an_option() -> None:
    assert CASES is WITH_TOPICS
    assert sorted(CASES) == sorted(option.name for option in OPTIONS)


def test_a_field_of_the_clients_configuration_reaches_the_client(world: World) -> None:
    world.write(1, **{"client.add_window_bytes": "7m"})
    assert ClientConfig(add_window_bytes=7 * 1024 * 1024) in [config for _, config in connection._clients]


# --- what, and where


@case("metadata")
def _(world: World) -> None:
    world.write(1)
    with pytest.raises(BookKeeperError, match="elsewhere"):
        world.read(metadata=world.direct.uri.replace("/ledgers", "/elsewhere"))


@case("path")
def _(world: World) -> None:
    world.write(1)
    world.write(2, path=world.log + "-2")
    assert world.read() == [1]
    assert world.read(path=world.log + "-2") == [2]
    with pytest.raises(NoSuchLogError):
        world.read(path=world.log + "-3")


@case("logs")
def _(world: World) -> None:
    world.write(1)
    world.write(2, path=world.log + "-2")
    assert world.direct.column(None, logs=f"{world.log}-2, {world.log}") == [2, 1]


@case("logsPattern")
def _(world: World) -> None:
    for place in (1, 2, 10):
        world.write(place, path=f"{world.log}-{place}")
    assert world.direct.column(None, logsPattern=f"{world.log}-[0-9]") == [1, 2]


@case("ledger")
def _(world: World) -> None:
    world.write(1)
    world.write(2)
    ids = [world.ledger(place).ledger_id for place in (0, 1)]
    assert world.direct.column(None, "ledger_id", ledger=ids[1]) == ids[1:]
    assert world.direct.column(None, "ledger_id", ledger=f"{ids[1]},{ids[0]}") == ids[::-1]


@case("content")
def _(world: World) -> None:
    batch = pa.record_batch({"payload": ["a", "b"]})
    world.direct.write(world.log, batch, content="entries")
    assert world.direct.column(world.log, "payload", content="entries") == [b"a", b"b"]
    with pytest.raises(ConfigError, match="holds entries"):
        world.direct.read(world.log)


# --- how ledgers are written


@case("ensembleSize")
def _(world: World) -> None:
    world.write(1, ensembleSize=2, writeQuorum=2)
    assert world.metadata().ensemble_size == 2


@case("writeQuorum")
def _(world: World) -> None:
    world.write(1, writeQuorum=2)
    assert world.metadata().write_quorum == 2


@case("ackQuorum")
def _(world: World) -> None:
    world.write(1, ackQuorum=3)
    assert world.metadata().ack_quorum == 3


@case("digestType")
def _(world: World) -> None:
    world.write(1, digestType="HMAC")
    assert world.metadata().digest_type is DigestType.HMAC
    with pytest.raises(ConfigError, match="was created with HMAC"):
        world.read(digestType="CRC32C")


@case("password")
def _(world: World) -> None:
    world.write(1, password="secret")
    assert world.read(password="secret") == [1]
    with pytest.raises(UnauthorizedAccessError):
        world.read()


@case("passwordFile")
def _(world: World) -> None:
    with tempfile.NamedTemporaryFile() as file:  # only its owner may read it
        file.write(b"\xff\x00\n")
        file.flush()
        world.write(1, passwordFile=file.name)
        assert world.read(passwordFile=file.name) == [1]
    assert world.read(password="0xff00") == [1]
    assert world.metadata().password == b"\xff\x00"


@case("compression")
def _(world: World) -> None:
    sizes = []
    for compression in ("none", "lz4", "zstd"):
        world.write(*[7] * 1000, compression=compression)
        sizes.append(world.ledger().length)
    assert sizes[0] > 8000 > 2 * sizes[1]
    assert len(set(sizes)) == 3


@case("maxRowsPerEntry")
def _(world: World) -> None:
    world.write(*range(10), maxRowsPerEntry=4)
    assert world.ledger().last_entry_id == 2


@case("maxBytesPerEntry")
def _(world: World) -> None:
    world.write(*range(1000), maxBytesPerEntry="2k")
    assert world.ledger().last_entry_id == 3


# --- which rows, and in which parts


@case("where")
def _(world: World) -> None:
    world.write(*range(10))
    assert world.read(where="id >= 3 AND id < 5") == [3, 4]
    assert world.batches(where="id = 7", startingOffsets="earliest") == [[7]]


@case("maxBytesPerPartition")
def _(world: World) -> None:
    world.write(*range(1000), maxRowsPerEntry=10)
    assert (world.parts(), world.parts(maxBytesPerPartition="4k") > 3) == (1, True)


@case("minPartitions")
def _(world: World) -> None:
    world.write(*range(100), maxRowsPerEntry=10)
    assert (world.parts(), world.parts(minPartitions=5)) == (1, 5)


@case("recover")
def _(world: World) -> None:
    with BookKeeper(world.direct.uri, TALKING) as client:
        client.open_log(world.log, create=True).open_writer().append(b"a")
        assert world.direct.column(world.log, "payload", content="entries") == []
        assert world.direct.column(world.log, "payload", content="entries", recover=True) == [b"a"]


@case("includeMetadata")
def _(world: World) -> None:
    world.write(1, 2, maxRowsPerEntry=1)
    committed = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=world.committed_ms())
    origin = {"_ledger_id": world.ledger().ledger_id, "_log": world.log, "_version": 1, "_commit_timestamp": committed}
    expected = [{"id": 1, "_entry_id": 0} | origin, {"id": 2, "_entry_id": 1} | origin]
    assert world.direct.read(world.log, includeMetadata=True) == expected


@case("startingOffsets")
def _(world: World) -> None:
    world.write(1)
    end = world.end()
    world.write(2)
    assert world.read(startingOffsets=end) == [2]
    assert world.batches(startingOffsets=end) == [[2]]
    assert world.batches(startingOffsets="earliest") == [[1, 2]]
    assert world.batches(startingOffsets="latest") == world.batches() == []


@case("endingOffsets")
def _(world: World) -> None:
    world.write(1)
    end = world.end()
    world.write(2)
    assert world.read(endingOffsets=end) == [1]
    assert world.read(endingOffsets="latest") == [1, 2]


@case("startingTimestamp")
def _(world: World) -> None:
    world.write(1)
    first = world.committed_ms()
    world.write(2)
    assert world.read(startingTimestamp=first + 1) == [2]
    assert world.batches(startingTimestamp=first + 1) == [[2]]
    assert world.batches(startingTimestamp=first) == [[1, 2]]


@case("versionAsOf")
def _(world: World) -> None:
    world.write(1)
    world.write(2)
    assert (world.read(versionAsOf=1), world.read()) == ([1], [1, 2])


@case("timestampAsOf")
def _(world: World) -> None:
    world.write(1)
    first = world.committed_ms()
    world.write(2)
    assert world.read(timestampAsOf=first) == [1]


@case("timeZone")
def _(world: World) -> None:
    world.write(1)
    committed = datetime.fromtimestamp(world.committed_ms() / 1000, ZoneInfo("Asia/Tokyo")).replace(tzinfo=None)
    assert world.read(startingTimestamp=committed, timeZone="Asia/Tokyo") == [1]
    assert world.read(startingTimestamp=committed, timeZone="UTC") == []
    assert world.batches(startingTimestamp=committed, timeZone="Asia/Tokyo") == [[1]]
    with pytest.raises(ConfigError, match="names no offset from UTC"):
        world.read(startingTimestamp=committed)


# --- streams


@case("maxRowsPerTrigger")
def _(world: World) -> None:
    world.write(*range(6), maxRowsPerEntry=1)
    assert world.batches(startingOffsets="earliest", maxRowsPerTrigger=2) == [[0, 1], [2, 3], [4, 5]]


@case("maxBytesPerTrigger")
def _(world: World) -> None:
    world.write(*range(6), maxRowsPerEntry=1)
    assert world.batches(startingOffsets="earliest", maxBytesPerTrigger=1) == [[n] for n in range(6)]
    assert world.batches(startingOffsets="earliest", maxBytesPerTrigger="1g") == [list(range(6))]


@case("failOnDataLoss")
def _(world: World) -> None:
    world.write(1)
    world.write(2)
    start = world.start()
    world.truncate(1)
    with pytest.raises(DataLossError):
        world.batches(startingOffsets=start)
    assert world.batches(startingOffsets=start, failOnDataLoss=False) == [[2]]
    assert world.read(startingOffsets=start, failOnDataLoss=False) == [2]


@case("overwrites")
def _(world: World) -> None:
    world.write(1)
    start = world.start()
    world.direct.write(world.log, numbers(2), overwrite=True)
    world.write(3)
    with pytest.raises(LogReplacedError):
        world.batches(startingOffsets=start)
    assert world.batches(startingOffsets=start, overwrites="read") == [[1, 2, 3]]
    assert world.batches(startingOffsets=start, overwrites="skip") == [[1, 3]]
    assert world.read(startingOffsets=start, overwrites="skip") == [1, 3]


@case("cursorName")
def _(world: World) -> None:
    world.write(1)
    world.batches(startingOffsets="earliest", cursorName="nightly")
    logs = world.bookkeeper.logs
    assert "nightly" in [cursor.name for cursor in logs.cursors.all(world.log, logs.names.uid(world.log))]


# --- commits


@case("applicationId")
def _(world: World) -> None:
    for application in ("a", "a", "b"):
        world.write(1, applicationId=application, applicationVersion=7)
    assert world.read() == [1, 1]


@case("applicationVersion")
def _(world: World) -> None:
    for version in (7, 7, 6, 8):
        world.write(version, applicationId="a", applicationVersion=version)
    assert world.read() == [7, 8]


@case("partitionKey")
def _(world: World) -> None:
    world.write(1, 2, 3, partitionKey="id")
    assert (world.lanes().columns, world.lanes().count) == (("id",), 8)


@case("lanes")
def _(world: World) -> None:
    world.write(1, 2, 3, partitionKey="id", lanes=5)
    assert world.lanes().count == 5


@case("lane")
def _(world: World) -> None:
    world.write(*range(10), partitionKey="id", lanes=2)
    assert 0 < len(world.read(lane=1)) < 10
    assert sorted(world.read(lane=0) + world.read(lane=1)) == list(range(10))
    assert world.batches(lane=1, startingOffsets="earliest") == [world.read(lane=1)]


def _with_tombstones(world: World) -> None:
    for values, gone in (([1, 2, 2], [False, True, False]), ([1, 3, 3], [True, True, None])):
        batch = pa.record_batch({"id": values, "gone": gone})
        world.direct.write(world.log, batch, partitionKey="id", lanes=2)


@case("view")
def _(world: World) -> None:
    _with_tombstones(world)
    assert sorted(world.read(view="latest")) == [1, 2, 3]
    assert len(world.read(view="all")) == 6


@case("deletedBy")
def _(world: World) -> None:
    _with_tombstones(world)
    assert sorted(world.read(view="latest", deletedBy="gone")) == [2, 3]


def named(world: World) -> pa.RecordBatch:
    return pa.record_batch({"id": [1, 2], "into": [world.log, f"{world.log}-b"]})


@case("logColumn")
def _(world: World) -> None:
    world.direct.write(None, named(world), logColumn="into", createLogs=True)
    assert (world.read(), world.direct.column(f"{world.log}-b")) == ([1], [2])


@case("createLogs")
def _(world: World) -> None:
    with pytest.raises(ConfigError, match="there is no such log"):
        world.direct.write(None, named(world), logColumn="into")
    world.direct.write(None, named(world), logColumn="into", createLogs=True)
    assert world.read() == [1]


@case("mergeSchema")
def _(world: World) -> None:
    world.write(1)
    wider = pa.record_batch({"id": [2], "name": ["x"]})
    with pytest.raises(SchemaMismatchError, match="name"):
        world.direct.write(world.log, wider)
    world.direct.write(world.log, wider, mergeSchema=True)
    assert world.direct.read(world.log) == [{"id": 1, "name": None}, {"id": 2, "name": "x"}]
