"""A log whose ledgers moved into a table is the same log, and the table has its rows. Ref: DESIGN.md, "Lake"."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bk_spark import (
    ConfigError,
    CorruptionError,
    LogPosition,
    NoSuchLedgerError,
    NoSuchLogError,
    Retention,
    SchemaMismatchError,
    StorageError,
    aio,
)
from tests.cluster.lake.conftest import TieredLog

Reads = Callable[[TieredLog], pa.Table]


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    nested = [None if n % 5 == 0 else {"tags": [f"t{n}", None], "of": [("k", n)]} for n in numbers]
    kind = pa.struct([("tags", pa.list_(pa.string())), ("of", pa.map_(pa.string(), pa.int64()))])
    columns = {
        "id": pa.array(numbers, pa.int64()),
        "small": pa.array([n % 100 for n in numbers], pa.int8()),
        "name": pa.array([None if n % 3 == 0 else f"name {n}" for n in numbers]),
        "nested": pa.array(nested, kind),
    }
    return pa.table(columns)


def filled(tiered: TieredLog, appends: int = 3, count: int = 500) -> pa.Table:
    for number in range(appends):
        tiered.log.append_rows(rows(number * count, count))
    return tiered.log.read_rows().read_all()


def moved(tiered: TieredLog) -> None:
    tiered.log.set_tier(tiered.tier)
    tiered.run()
    assert tiered.on_bookies() == 0


async def by_coroutine(tiered: TieredLog) -> pa.Table:
    async with await aio.connect(tiered.uri) as client:
        log = await client.open_log(tiered.log.name)
        return pa.Table.from_batches([batch async for batch in log.read_rows()])


async def by_tail_of_coroutines(tiered: TieredLog) -> pa.Table:
    async with await aio.connect(tiered.uri) as client:
        log = await client.open_log(tiered.log.name)
        async with log.tail_rows("earliest", timeout_s=0.1) as tail:
            return pa.Table.from_batches([batch async for batch in tail])


async def entries_by_coroutine(tiered: TieredLog) -> pa.Table:
    async with await aio.connect(tiered.uri) as client:
        log = await client.open_log(tiered.log.name)
        return pa.Table.from_batches([batch async for batch in log.read()])


WAYS: dict[str, Reads] = {
    "read_rows": lambda tiered: tiered.log.read_rows().read_all(),
    "tail_rows": lambda tiered: pa.Table.from_batches(list(tiered.log.tail_rows("earliest", timeout_s=0.1))),
    "coroutine": lambda tiered: asyncio.run(by_coroutine(tiered)),
    "tail of coroutines": lambda tiered: asyncio.run(by_tail_of_coroutines(tiered)),
}


@pytest.mark.parametrize("way", WAYS)
def test_rows_are_read_as_before_once_their_ledgers_are_gone_from_bookies(tiered: TieredLog, way: str) -> None:
    before = filled(tiered)
    moved(tiered)
    assert WAYS[way](tiered).equals(before)
    tiered.log.append_rows(rows(1500, 10))
    assert WAYS[way](tiered).equals(pa.concat_tables([before, rows(1500, 10)]))


def test_places_columns_conditions_and_versions_mean_the_same_as_before(tiered: TieredLog) -> None:
    filled(tiered)
    ledgers = [one.ledger_id for one in tiered.log.ledgers()]

    def asked() -> list[pa.Table]:
        log = tiered.log
        return [
            log.read_rows(["name"], "id >= 700 AND id < 705").read_all(),
            log.read_rows(start=LogPosition(ledgers[1], 0), end=LogPosition(ledgers[2], 0)).read_all(),
            log.read_rows(version=2).read_all(),
            log.read_rows([*log.schema.names][::-1], "nested IS NULL").read_all(),
        ]

    before = asked()
    moved(tiered)
    assert [one.num_rows for one in before] == [5, 500, 1000, 300]
    assert asked() == before


def test_other_programs_read_the_rows_of_the_log_in_the_table(tiered: TieredLog) -> None:
    expected = filled(tiered).to_pylist()
    moved(tiered)
    assert tiered.in_table().to_pylist() == expected
    files = [task.file.file_path.removeprefix("file://") for task in tiered.table().scan().plan_files()]
    query = "SELECT count(*), sum(id), count(name), count(DISTINCT _ledger_id) FROM read_parquet($files)"
    found = duckdb.execute(query, {"files": files}).fetchone()
    assert found == (1500, sum(range(1500)), 1000, 3)


def test_the_table_follows_appends_wider_types_new_columns_truncation_and_overwrite(tiered: TieredLog) -> None:
    filled(tiered)
    moved(tiered)
    more = rows(1500, 5).set_column(1, "small", pa.array([70_000] * 5, pa.int32())).append_column("extra", pa.array(range(5)))
    tiered.log.append_rows(more, merge_schema=True)
    tiered.run()
    assert tiered.in_table().to_pylist() == tiered.log.read_rows().read_all().to_pylist()
    assert tiered.log.read_rows(version=3).read_all().schema.field("small").type == pa.int8()
    ledgers = [one.ledger_id for one in tiered.log.ledgers()]
    tiered.log.truncate(LogPosition(ledgers[1], 0))
    tiered.run()
    assert tiered.in_table().num_rows == 1005
    assert tiered.in_table().to_pylist() == tiered.log.read_rows().read_all().to_pylist()
    assert tiered.log.read_rows(version=3).read_all().num_rows == 1500  # files of old versions stay


def test_a_deleted_log_leaves_its_table_to_nobody(tiered: TieredLog) -> None:
    filled(tiered)
    moved(tiered)
    tiered.log.delete()
    assert tiered.in_table().num_rows == 1500
    again = tiered.client.open_log(tiered.log.name, create=True)
    with pytest.raises(ConfigError, match="it is not this log's"):
        again.set_tier(tiered.tier)
    with pytest.raises(NoSuchLogError):
        tiered.log.read_rows()
    assert again.snapshot().version == 0


def test_a_vacuum_deletes_nothing_that_a_tiered_version_needs(tiered: TieredLog) -> None:
    before = filled(tiered)
    moved(tiered)
    tiered.log.set_retention(Retention(version_retention_s=0))
    tiered.log.append_rows(rows(1500, 10))
    tiered.client.vacuum_log(tiered.log.name)
    assert tiered.log.read_rows().read_all().equals(pa.concat_tables([before, rows(1500, 10)]))
    tiered.run()
    assert tiered.in_table().num_rows == 1510


def test_entries_are_tiered_with_their_payloads(tiered: TieredLog) -> None:
    with tiered.log.open_writer() as writer:
        for number in range(20):
            writer.append(b"entry %d" % number)
    before = pa.Table.from_batches(list(tiered.log.read()))
    moved(tiered)
    after = pa.Table.from_batches(list(tiered.log.read()))
    assert asyncio.run(entries_by_coroutine(tiered)).equals(before)
    assert after.equals(before)
    assert sorted(tiered.table().scan().to_arrow()["payload"].to_pylist())[0] == b"entry 0"


def test_a_reader_that_began_before_a_release_goes_on_in_the_files(tiered: TieredLog) -> None:
    before = filled(tiered, 6)
    reader = tiered.log.read_rows()
    first = reader.read_next_batch()
    moved(tiered)
    assert pa.Table.from_batches([first, *reader]).equals(before)


def test_a_coroutine_that_began_before_a_release_goes_on_in_the_files(tiered: TieredLog) -> None:
    before = filled(tiered, 6)

    async def read() -> pa.Table:
        async with await aio.connect(tiered.uri) as client:
            log = await client.open_log(tiered.log.name)
            batches = [batch async for batch in _after_the_first(log.read_rows(), lambda: moved(tiered))]
            return pa.Table.from_batches(batches)

    assert asyncio.run(read()).equals(before)


async def _after_the_first(batches: Any, call: Callable[[], None]) -> Any:
    is_first = True
    async for batch in batches:
        yield batch
        if is_first:
            await asyncio.to_thread(call)
        is_first = False


def theirs(tiered: TieredLog, change: Callable[[pa.Table], pa.Table]) -> None:
    """Another program writes the table anew, and the old files go."""
    table = tiered.table()
    old = [task.file.file_path for task in table.scan().plan_files()]
    table.overwrite(change(table.scan().to_arrow()))
    for path in old:
        Path(path.removeprefix("file://")).unlink()


def with_a_row_of_theirs(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, pa.Table.from_pylist([{"id": -1}], rows.schema)])


def in_large_types(rows: pa.Table) -> pa.Table:
    return rows.set_column(2, "name", rows["name"].cast(pa.large_string()))


THEIRS = [lambda rows: rows.sort_by("name"), with_a_row_of_theirs, in_large_types]


@pytest.mark.parametrize("change", THEIRS, ids=["sorted", "with a row of theirs", "in large types"])
def test_files_that_others_wrote_are_noted_and_read_as_the_log(
    tiered: TieredLog, change: Callable[[pa.Table], pa.Table]
) -> None:
    before = filled(tiered)
    moved(tiered)
    theirs(tiered, change)
    with pytest.raises(CorruptionError, match="it is gone"):
        tiered.log.read_rows().read_all()
    tiered.run()
    assert tiered.log.read_rows().read_all().equals(before)
    assert tiered.log.read_rows(["id"], "id >= 400 AND id < 600").read_all()["id"].to_pylist() == list(range(400, 600))
    assert sum(batch.num_rows for batch in tiered.log.tail_rows("earliest", timeout_s=0.1)) == 1500


def test_a_file_that_others_sorted_is_in_the_order_of_the_log_also_once_a_truncation_has_rewritten_it(
    tiered: TieredLog,
) -> None:
    before = filled(tiered)
    moved(tiered)
    theirs(tiered, lambda rows: rows.sort_by("name"))
    tiered.run()
    tiered.log.truncate(LogPosition(tiered.log.ledgers()[1].ledger_id, 0))
    tiered.run()
    assert tiered.log.read_rows().read_all().equals(before.slice(500))


def test_a_file_of_others_without_our_columns_is_left_alone(tiered: TieredLog, tmp_path: Path) -> None:
    before = filled(tiered)
    moved(tiered)
    pq.write_table(pa.table({"id": pa.array([7], pa.int64())}), tmp_path / "theirs.parquet")
    tiered.table().add_files([f"file://{tmp_path}/theirs.parquet"])
    tiered.log.append_rows(rows(1500, 5))
    tiered.run()
    assert tiered.table().scan().to_arrow().num_rows == 1506
    assert tiered.log.read_rows().read_all().slice(0, 1500).equals(before)


def test_a_column_that_others_dropped_is_named_and_ledgers_stay_on_bookies(tiered: TieredLog) -> None:
    filled(tiered)
    tiered.log.set_tier(replace(tiered.tier, keep_on_bookies_s=86_400))
    tiered.run()
    with tiered.table().update_schema() as update:
        update.delete_column("name")
    tiered.log.set_tier(tiered.tier)
    with pytest.raises(CorruptionError, match="dropped or renamed columns"):
        tiered.run()
    tiered.log.append_rows(rows(1500, 5))
    for _ in range(2):  # the step that cannot be completed is given up
        with pytest.raises(ConfigError, match="column 'name' of a tier's table is missing: somebody dropped or renamed it"):
            tiered.run()
    assert tiered.on_bookies() == 4
    mark = tiered.client.logs.names.head(tiered.log.name, tiered.log.uid).tier
    assert mark is not None
    assert mark.boundary == tiered.log.ledgers()[2].ledger_id


def test_a_table_that_others_partitioned_gets_no_file_until_it_is_in_no_partitions_again(tiered: TieredLog) -> None:
    """Engines would look for its rows in the partitions alone."""
    filled(tiered)
    moved(tiered)
    with tiered.table().update_spec() as update:
        update.add_identity("id")
    tiered.log.append_rows(rows(1500, 5))
    with pytest.raises(ConfigError, match="somebody changed it, and files of the tier have no partition"):
        tiered.run()
    assert tiered.log.read_rows().read_all().num_rows == 1505
    with tiered.table().update_spec() as update:
        update.remove_field("id")
    tiered.run()
    assert tiered.table().scan("id = 1502").to_arrow().num_rows == 1


def test_old_versions_read_small_types_beside_wider_ones(tiered: TieredLog) -> None:
    day = date(2026, 11, 30)
    small = {
        "l": pa.array([[1, 2], None], pa.list_(pa.int8())),
        "d": pa.array([5, None], pa.int8()),
        "f": pa.array([1, 2], pa.int32()),
        "t": pa.array([day, None], pa.date32()),
    }
    wide = {
        "l": pa.array([[100_000]], pa.list_(pa.int32())),
        "d": pa.array([Decimal(7)], pa.decimal128(5, 0)),
        "f": pa.array([0.5]),
        "t": pa.array([datetime(2026, 11, 30, 4, 5)], pa.timestamp("us")),
    }
    for columns in (small, wide):
        tiered.log.append_rows(pa.table(columns), merge_schema=True)
    moved(tiered)
    old = tiered.log.read_rows(version=1).read_all()
    assert (old.schema.field("l").type, old.to_pylist()) == (
        pa.list_(pa.field("element", pa.int8())),
        pa.table(small).to_pylist(),
    )
    new = tiered.log.read_rows().read_all().to_pydict()
    assert (new["l"], new["d"], new["f"]) == ([[1, 2], None, [100_000]], [Decimal(5), None, Decimal(7)], [1.0, 2.0, 0.5])


def test_an_append_that_the_table_cannot_follow_is_refused_and_nothing_is_written(tiered: TieredLog) -> None:
    tiered.log.append_rows(pa.table({"n": pa.array([1, 2], pa.int32())}))
    moved(tiered)
    for columns, problem in (
        ({"n": [0.5]}, "column 'n' is int in the log and would be double, which the table of its tier cannot follow"),
        ({"n": [1], "i": pa.array([1], pa.duration("us"))}, "column 'i' has the type interval day to second"),
        ({"n": [1], "_row": [1]}, "cannot have a column of the name '_row'"),
    ):
        with pytest.raises(SchemaMismatchError, match=problem):
            tiered.log.append_rows(pa.table(columns), merge_schema=True)
    assert tiered.log.snapshot().version == 1
    tiered.log.append_rows(pa.table({"n": [2**40], "more": ["x"]}), merge_schema=True)
    tiered.run()
    assert tiered.in_table()["n"].to_pylist() == [1, 2, 2**40]


def test_a_time_beyond_the_calendar_is_tiered(tiered: TieredLog) -> None:
    far = pa.table({"t": pa.array([2**50, -(2**62), 2**62], pa.timestamp("us", "UTC"))})
    tiered.log.append_rows(far)
    moved(tiered)
    assert tiered.log.read_rows().read_all()["t"].cast(pa.int64()).to_pylist() == [2**50, -(2**62), 2**62]


def test_a_truncated_ledger_whose_file_was_expired_holds_up_no_release(tiered: TieredLog) -> None:
    filled(tiered, 1)
    tiered.log.set_tier(replace(tiered.tier, keep_on_bookies_s=86_400))
    tiered.run()
    [old] = [task.file.file_path for task in tiered.table().scan().plan_files()]
    tiered.log.append_rows(rows(500, 500))
    tiered.run()
    tiered.log.truncate(LogPosition(tiered.log.ledgers()[1].ledger_id, 0))
    tiered.run()
    Path(old.removeprefix("file://")).unlink()
    tiered.log.set_tier(tiered.tier)
    tiered.run()
    assert tiered.on_bookies() == 0
    assert tiered.log.read_rows(version=1).read_all().num_rows == 500  # its ledger stayed on bookies


def test_several_tierers_at_once_put_each_row_into_the_table_once(tiered: TieredLog) -> None:
    before = filled(tiered, 8, 50)
    tiered.log.set_tier(tiered.tier)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            tiered.run()
        except BaseException as problem:
            failures.append(problem)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tiered.run()
    assert not [one for one in failures if not isinstance(one, StorageError)], failures
    assert tiered.in_table().to_pylist() == before.to_pylist()
    assert tiered.log.read_rows().read_all().equals(before)


def test_ledgers_stay_on_bookies_for_as_long_as_the_settings_say(tiered: TieredLog) -> None:
    filled(tiered)
    tiered.log.set_tier(replace(tiered.tier, keep_on_bookies_s=86_400))
    report = tiered.run()
    assert (report.tiered.ledgers, report.released.ledgers, report.waiting) == (3, 0, 3)
    assert tiered.on_bookies() == 3
    tiered.log.set_tier(tiered.tier)
    assert tiered.run().released.ledgers == 3
    assert tiered.on_bookies() == 0


def test_a_table_with_the_rows_of_a_log_is_given_to_no_other(tiered: TieredLog) -> None:
    filled(tiered)
    moved(tiered)
    other = tiered.client.open_log(f"{tiered.log.name}-other", create=True)
    with pytest.raises(ConfigError, match="it is not this log's"):
        other.set_tier(tiered.tier)
    with pytest.raises(ConfigError, match="a tier cannot move"):
        tiered.log.set_tier(replace(tiered.tier, location=f"{tiered.tier.location}-2", table="shop.other"))


def test_two_logs_may_have_one_location(tiered: TieredLog) -> None:
    other = TieredLog(
        tiered.uri,
        tiered.client,
        tiered.client.open_log(f"{tiered.log.name}-other", create=True),
        replace(tiered.tier, table="shop.other"),
    )
    expected = [filled(one) for one in (tiered, other)]
    for one in (tiered, other):
        moved(one)
    assert [one.log.read_rows().read_all() for one in (tiered, other)] == expected
    assert [one.in_table().num_rows for one in (tiered, other)] == [1500, 1500]


REFUSED: dict[str, Any] = {
    "an interval": pa.array([1], pa.duration("us")),
    "nothing inside of a list": pa.array([[None]], pa.list_(pa.null())),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_log_whose_columns_a_table_cannot_hold_gets_no_tier(tiered: TieredLog, what: str) -> None:
    tiered.log.append_rows(pa.table({"odd": REFUSED[what]}))
    with pytest.raises(ConfigError, match=r"column 'odd.*a type that Iceberg does not have"):
        tiered.log.set_tier(tiered.tier)
    assert tiered.log.snapshot().version == 1
    assert tiered.client.logs.names.head(tiered.log.name, tiered.log.uid).tier is None


def test_a_file_that_is_gone_is_named_and_nothing_else_is_given_in_its_place(tiered: TieredLog) -> None:
    filled(tiered)
    moved(tiered)
    [file] = [task.file.file_path for task in tiered.table().scan().plan_files()]
    Path(file.removeprefix("file://")).unlink()
    with pytest.raises(CorruptionError, match="it is gone") as refused:
        tiered.log.read_rows().read_all()
    assert file in str(refused.value)


def test_a_ledger_that_is_in_no_tier_is_missing_as_before(tiered: TieredLog) -> None:
    filled(tiered)
    ledger_id = tiered.log.ledgers()[1].ledger_id
    tiered.client.delete_ledger(ledger_id, force=True)
    with pytest.raises(NoSuchLedgerError):
        tiered.log.read_rows().read_all()


@pytest.mark.parametrize("drops", [True, False])
def test_a_log_that_is_deleted_takes_its_table_along_where_that_is_said(tiered: TieredLog, tmp_path: Path, drops: bool) -> None:
    filled(tiered)
    moved(tiered)
    tiered.log.delete(drop_table=drops)
    left = [one for one in (tmp_path / "lake").rglob("*") if one.is_file() and one.name != "_catalog.db"]
    assert (left == []) == drops
    assert tiered.catalog().table_exists(tiered.tier.table) != drops


def test_the_table_of_a_log_without_a_tier_cannot_be_dropped_and_the_log_stays(tiered: TieredLog) -> None:
    filled(tiered, 1)
    with pytest.raises(ConfigError, match="set one first"):
        tiered.log.delete(drop_table=True)
    assert tiered.log.read_rows().read_all().num_rows == 500


def test_rows_that_others_add_under_a_ledgers_id_are_told_and_leave_the_table(
    tiered: TieredLog, caplog: pytest.LogCaptureFixture
) -> None:
    before = filled(tiered)
    moved(tiered)
    table = tiered.table()
    table.append(table.scan(limit=3).to_arrow())
    assert tiered.in_table().num_rows == 1503
    tiered.run()
    assert "has rows of it that it did not write: they go" in caplog.text
    assert tiered.in_table().to_pylist() == before.to_pylist()
    assert tiered.log.read_rows().read_all().equals(before)


def test_keys_are_looked_up_in_ledgers_that_moved_and_in_those_on_bookies(tiered: TieredLog) -> None:
    def keyed(first: int, count: int) -> pa.Table:
        numbers = range(first, first + count)
        return pa.table({"k": [f"key {n % 700}" for n in numbers], "n": list(numbers), "gone": [n % 10 == 0 for n in numbers]})

    for number in range(3):
        tiered.log.append_rows(keyed(number * 1000, 1000), partition_key="k", lanes=3)
    keys = [f"key {n}" for n in range(0, 900, 7)]

    def found() -> list[list[dict[str, Any]]]:
        other = tiered.client.open_log(tiered.log.name)
        queries: list[dict[str, Any]] = [{}, {"deleted_by": "gone", "columns": ["n"]}, {"version": 2}]
        many = [log.get_many(keys, **query).to_pylist() for log in (tiered.log, other) for query in queries]
        return [*many, *(tiered.log.get(key).to_pylist() for key in keys[:9])]

    before = found()
    newest = {row["k"]: row for row in tiered.log.read_rows().read_all().to_pylist()}
    assert before[0] == [newest[key] for key in keys if key in newest]
    moved(tiered)
    assert found() == before
    tiered.log.append_rows(keyed(3000, 200))
    newest |= {row["k"]: row for row in keyed(3000, 200).to_pylist()}
    assert found()[0] == [newest[key] for key in keys if key in newest]
