"""The newest row of each key on real bookies: by threads and coroutines, from the tier, after interrupts, and refused."""

from __future__ import annotations

import asyncio
import tempfile
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bk_spark import aio
from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import ConfigError
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.log_handle import Log
from bk_spark.log.rows import read_rows
from bk_spark.log.rows.latest import chosen, reader, shares
from bk_spark.log.stored.tier_settings import Tier
from bk_spark.rows.newest.newest_rows import NewestRows


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_uri) as client:
        yield client


@pytest.fixture
def log(client: BookKeeper) -> Log:
    return client.open_log(f"latest-{uuid.uuid4().hex}", create=True)


def readings(first: int, count: int = 1000, meters: int = 100) -> pa.Table:
    numbers = list(range(first, first + count))
    gone = [number % meters == 7 and number >= 1000 for number in numbers]
    return pa.table({"meter": [f"m{number % meters}" for number in numbers], "n": numbers, "gone": gone})


@pytest.fixture
def filled(log: Log) -> Log:
    log.append_rows(readings(0), partition_key="meter")
    log.append_rows(readings(1000))
    return log


def numbers_of(rows: Any) -> list[int]:
    return sorted(n for batch in rows for n in batch.column("n").to_pylist())


NEWEST = list(range(1900, 2000))


def test_each_key_has_its_last_row(filled) -> None:
    found = filled.read_rows(view="latest").read_all()
    assert sorted(found.column("n").to_pylist()) == NEWEST
    assert found.schema == filled.schema
    assert numbers_of(filled.read_rows(view="latest", version=1)) == list(range(900, 1000))
    assert numbers_of(filled.read_rows(["n"], view="latest", lane=[0, 3])) == sorted(
        {*numbers_of(filled.read_rows(["n"], lane=[0, 3]))} & {*NEWEST}
    )


def test_rows_are_in_the_order_of_the_log(filled) -> None:
    everything = filled.read_rows(["n"]).read_all().column("n").to_pylist()
    found = filled.read_rows(["n"], view="latest").read_all().column("n").to_pylist()
    assert found == [n for n in everything if n >= 1900]


def test_a_condition_never_brings_back_an_older_row(filled) -> None:
    assert numbers_of(filled.read_rows(where="n < 1950", view="latest")) == list(range(1900, 1950))
    assert numbers_of(filled.read_rows(where="n < 1900", view="latest")) == []
    assert numbers_of(filled.read_rows(where="meter = 'm3' AND n > 5", view="latest")) == [1903]


def test_a_tombstone_removes_its_key(filled) -> None:
    assert numbers_of(filled.read_rows(["n"], view="latest", deleted_by="gone")) == [n for n in NEWEST if n != 1907]
    filled.append_rows(pa.table({"meter": ["m7"], "n": [2000]}))
    assert 2000 in numbers_of(filled.read_rows(["n"], view="latest", deleted_by="gone"))


def test_start_and_end_say_which_rows_there_are(filled) -> None:
    second = next(one for one in filled.snapshot().ledgers if one.rows and one.ledger_id > first_commit_end(filled))
    assert numbers_of(filled.read_rows(view="latest", end=LogPosition(second.ledger_id, 0))) == list(range(900, 1000))


def first_commit_end(log: Log) -> int:
    return max(one.ledger_id for one in log.snapshot(1).ledgers)


def test_coroutines_read_the_same(filled, cluster) -> None:
    async def read() -> list[int]:
        async with await aio.connect(cluster.metadata_uri) as client:
            log = await client.open_log(filled.name)
            rows = log.read_rows(["n"], "n < 1950", view="latest", deleted_by="gone")
            return sorted([n async for batch in rows for n in batch.column("n").to_pylist()])

    assert asyncio.run(read()) == [n for n in range(1900, 1950) if n != 1907]


def test_keys_that_do_not_fit_go_to_files_that_leave_nothing(filled, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(chosen, "NewestRows", partial(NewestRows, 100))
    found = filled.read_rows(view="latest")
    assert numbers_of([found.read_next_batch()]) != []
    assert list(tmp_path.iterdir()) == []
    assert numbers_of(filled.read_rows(view="latest")) == NEWEST


def test_rows_are_read_on_after_an_interrupt(filled, monkeypatch) -> None:
    monkeypatch.setattr(reader, "shares", partial(shares.shares, target=1))
    batches = reader.LatestReader.read(*latest_reader(filled))
    expected = numbers_of(filled.read_rows(view="latest"))
    found = [batches.read_next_batch()]
    real, calls = reader.LatestReader.pick, []

    def interrupted(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(reader.LatestReader, "pick", interrupted)
    with pytest.raises(KeyboardInterrupt):
        found += iter(batches)
    found += iter(batches)
    assert numbers_of(found) == expected


def latest_reader(log: Log) -> Any:
    from bk_spark.log.log_handle import row_reader
    from bk_spark.log.rows.latest.asked import AskedView

    return reader.LatestReader(row_reader(log, read_rows.RowQuery(), None, None), AskedView("latest")), None, None


def test_stretches_without_a_newest_row_are_not_read_again(filled, monkeypatch) -> None:
    asked: list[int] = []
    real = read_rows.RowReader.rows_of

    def watched(self: Any, stretch: Any) -> Any:
        asked.append(stretch.ledger_id)
        return real(self, stretch)

    monkeypatch.setattr(read_rows.RowReader, "rows_of", watched)
    numbers_of(filled.read_rows(view="latest"))
    old = {one.ledger_id for one in filled.snapshot(1).ledgers}
    new = {one.ledger_id for one in filled.snapshot().ledgers} - old
    assert {one: asked.count(one) for one in old | new} == dict.fromkeys(old, 1) | dict.fromkeys(new, 2)


def test_the_tier_gives_the_same(filled, client, tmp_path: Path) -> None:
    filled.set_tier(Tier(f"file://{tmp_path}", "bench.latest", keep_on_bookies_s=0))
    client.tier_log(filled.name)
    filled.append_rows(readings(2000, 50))
    found = numbers_of(filled.read_rows(["n"], view="latest", deleted_by="gone"))
    assert found == list(range(1950, 2000)) + [n for n in range(2000, 2050) if n % 100 != 7]
    assert numbers_of(filled.read_rows(where="meter = 'm60' AND n > 3", view="latest")) == [1960]


def test_a_log_without_keys_has_no_newest_rows(log) -> None:
    log.append_rows(readings(0))
    with pytest.raises(ConfigError, match=r"view is 'latest': version 1 of log '.*' has no key"):
        log.read_rows(view="latest")


def test_entries_have_no_newest_rows(log) -> None:
    with log.open_writer() as writer:
        writer.append(b"x")
    with pytest.raises(ConfigError, match=r"it holds entries, not rows: read them with Log.read\(\)"):
        log.read_rows(view="latest")
