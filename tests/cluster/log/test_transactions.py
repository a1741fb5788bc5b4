"""Transactions over several logs on real bookies: all of it is seen, or nothing. Ref: DESIGN.md, "Transactions"."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from bk_spark import aio
from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import ConfigError, NoSuchLogError, SchemaMismatchError
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.log_transaction import LogTransaction


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_uri) as client:
        yield client


@pytest.fixture
def names(client: BookKeeper) -> list[str]:
    """Two logs with a row each."""
    names = [f"{kind}-{uuid.uuid4().hex}" for kind in ("orders", "payments")]
    for name in names:
        client.append_rows(name, rows(0), create=True)
    return names


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(client: BookKeeper, name: str, version: int | None = None) -> list[int]:
    return [one for batch in client.open_log(name).read_rows(version=version) for one in batch.column("id").to_pylist()]


def test_rows_of_all_logs_are_seen_from_the_end_of_the_block_on(client: BookKeeper, names: list[str]) -> None:
    with client.transaction(application=("loader", 1)) as transaction:
        transaction.append_rows(names[0], rows(1))
        transaction.append_rows(names[1], rows(2))
        transaction.append_rows(names[0], rows(3))
        assert [ids(client, name) for name in names] == [[0], [0]]
    assert [ids(client, name) for name in names] == [[0, 1, 3], [0, 2]]
    assert transaction.versions == dict.fromkeys(names, 2)
    assert {client.open_log(name).versions()[-1].transaction.transaction_id for name in names} == {transaction.transaction_id}


def test_a_block_that_raises_changes_nothing(client: BookKeeper, names: list[str]) -> None:
    before = len(list(client.list_ledgers()))

    def block() -> None:
        with client.transaction() as transaction:
            transaction.append_rows(names[0], rows(1))
            transaction.append_rows(names[1], rows(2))
            raise RuntimeError("not today")

    with pytest.raises(RuntimeError, match="not today"):
        block()
    assert [ids(client, name) for name in names] == [[0], [0]]
    assert len(list(client.list_ledgers())) == before


def test_a_change_that_fails_lets_the_transaction_fail_whatever_the_block_does(client: BookKeeper, names: list[str]) -> None:
    def block() -> None:
        with client.transaction() as transaction:
            transaction.append_rows(names[0], rows(1))
            with pytest.raises(SchemaMismatchError):
                transaction.append_rows(names[1], pa.table({"other": [1]}))

    with pytest.raises(ConfigError, match="the transaction is failed: one of its changes failed: nothing is committed"):
        block()
    assert [ids(client, name) for name in names] == [[0], [0]]


def test_a_repeated_block_of_an_application_changes_nothing(client: BookKeeper, names: list[str]) -> None:
    application = (f"loader-{uuid.uuid4().hex}", 7)
    made = []
    for _ in range(2):
        with client.transaction(application) as transaction:
            for name in names:
                transaction.append_rows(name, rows(1))
        made.append(transaction)
    assert [one.is_duplicate for one in made] == [False, True]
    assert made[0].versions == made[1].versions
    assert [ids(client, name) for name in names] == [[0, 1], [0, 1]]


def test_it_overwrites_truncates_makes_logs_and_lists_ledgers(client: BookKeeper, names: list[str]) -> None:
    client.append_rows(names[1], rows(1))
    last = client.open_log(names[1]).ledgers()[-1]
    entries, made = (f"{kind}-{uuid.uuid4().hex}" for kind in ("entries", "made"))
    client.open_log(entries, create=True)
    with client.create_ledger() as writer:
        writer.append(b"entry")
    with client.transaction() as transaction:
        transaction.overwrite(names[0], pa.table({"id": ["text"]}))
        transaction.truncate(names[1], LogPosition(last.ledger_id, 0))
        transaction.append_rows(made, rows(5), create=True, partition_key="id", lanes=2)
        transaction.append_ledgers(entries, [writer.ledger_id])
    assert ids(client, names[0]) == ["text"]
    assert ids(client, names[0], 1) == [0]
    assert ids(client, names[1]) == [1]
    assert ids(client, made) == [5]
    assert client.open_log(made).snapshot().lanes.count == 2
    assert [one for batch in client.open_log(entries).read() for one in batch.column("payload").to_pylist()] == [b"entry"]


def test_columns_of_later_rows_are_added_with_merge_schema(client: BookKeeper, names: list[str]) -> None:
    with client.transaction() as transaction:
        transaction.append_rows(names[0], rows(1))
        transaction.append_rows(names[0], pa.table({"id": [2], "note": ["x"]}), merge_schema=True)
        transaction.append_rows(names[0], pa.table({"id": [3], "note": ["y"]}))
    assert client.open_log(names[0]).read_rows().read_all().to_pydict() == {"id": [0, 1, 2, 3], "note": [None, None, "x", "y"]}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t, name: t.append_rows("no-such-log", rows(1)), "there is no log 'no-such-log'"),
        (
            lambda t, name: t.overwrite(name, rows(1)),
            "is overwrite: the transaction has another change of this log, of kind app",
        ),
        (lambda t, name: t.append_ledgers(name, []), "the transaction appends both rows and ledgers of entries to it"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(client: BookKeeper, names: list[str], change, sentence: str) -> None:
    def block() -> None:
        with client.transaction() as transaction:
            transaction.append_rows(names[0], rows(1))
            change(transaction, names[0])

    with pytest.raises((ConfigError, NoSuchLogError), match=sentence):
        block()


def test_a_ledger_for_two_logs_is_refused_at_the_call_and_stays_free(client: BookKeeper, names: list[str]) -> None:
    entries = [client.open_log(f"entries-{uuid.uuid4().hex}", create=True) for _ in range(2)]
    with client.create_ledger() as writer:
        writer.append(b"entry")

    def block() -> None:
        with client.transaction() as transaction:
            transaction.append_ledgers(entries[0].name, [writer.ledger_id])
            transaction.append_ledgers(entries[1].name, [writer.ledger_id])

    with pytest.raises(ConfigError, match=f"is {writer.ledger_id}: the transaction gives it to log '{entries[0].name}', too"):
        block()
    assert entries[1].append_ledgers([writer.ledger_id]).added.ledgers == 1


def test_rows_that_come_from_code_which_changes_another_log_are_one_transaction(client: BookKeeper, names: list[str]) -> None:
    """Such as rows that are sorted while they are read: the bad ones go to a log of their own."""
    with client.transaction() as transaction:

        def sorted_out() -> Iterator[pa.RecordBatch]:
            transaction.append_rows(names[1], rows(13))
            yield from rows(1, 2).to_batches()

        transaction.append_rows(names[0], pa.RecordBatchReader.from_batches(rows().schema, sorted_out()))
    assert [ids(client, name) for name in names] == [[0, 1, 2], [0, 13]]


def test_an_argument_that_there_is_not_is_refused(client: BookKeeper, names: list[str]) -> None:
    with client.transaction() as transaction, pytest.raises(TypeError, match="without an argument 'application': there are"):
        transaction.append_rows(names[0], rows(1), application=("loader", 7))  # type: ignore[call-arg]


def test_a_transaction_has_one_block(client: BookKeeper, names: list[str]) -> None:
    transaction = client.transaction()
    with pytest.raises(ConfigError, match="the transaction is not begun: change logs inside of its 'with' block"):
        transaction.append_rows(names[0], rows(1))
    with pytest.raises(ConfigError, match="it tells what it made once its block has ended"):
        transaction.versions  # noqa: B018
    with transaction:
        pass
    assert transaction.versions == {}
    with pytest.raises(ConfigError, match="the transaction is over: begin another one for each block"), transaction:
        pass


def test_a_log_that_is_led_takes_the_rows_behind_what_its_leader_confirmed(client: BookKeeper, names: list[str]) -> None:
    leader = client.open_log(names[0]).open_row_writer()
    leader.append({"id": 1})
    leader.flush()
    with client.transaction() as transaction:
        for name in names:
            transaction.append_rows(name, rows(2))
    assert [ids(client, name) for name in names] == [[0, 1, 2], [0, 2]]


def transact(uri: str, names: list[str], count: int) -> None:
    with BookKeeper(uri) as writer:
        for number in range(1, count + 1):
            with writer.transaction() as transaction:
                for name in names:
                    transaction.append_rows(name, rows(number))


def test_readers_of_both_logs_see_each_transaction_in_both_or_in_none(
    client: BookKeeper, names: list[str], cluster: LocalCluster
) -> None:
    writers = [threading.Thread(target=transact, args=(cluster.metadata_uri, names, 10)) for _ in range(2)]
    times = []
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        versions = client.versions_of(names)
        times.append(datetime.now(UTC))
        first, second = (ids(client, name, versions[name]) for name in names)
        assert first == second
        together = client.read_rows(names).read_all().column("id").to_pylist()
        assert together[: len(together) // 2] == together[len(together) // 2 :]
    for at in times:
        versions = client.versions_of(names, timestamp=at)
        assert ids(client, names[0], versions[names[0]]) == ids(client, names[1], versions[names[1]])
    assert ids(client, names[0]) == ids(client, names[1])
    assert sorted(ids(client, names[0])) == [0, *(n for n in range(1, 11) for _ in range(2))]


def test_rows_of_several_logs_have_the_columns_of_all(client: BookKeeper, names: list[str]) -> None:
    client.append_rows(names[1], pa.table({"id": [1], "note": ["x"]}), merge_schema=True)
    found = client.read_rows(names).read_all().to_pydict()
    assert found == {"id": [0, 0, 1], "note": [None, None, "x"]}
    assert client.read_rows(names, columns=["note"], where="id = 1").read_all().to_pydict() == {"note": ["x"]}
    with pytest.raises(NoSuchLogError, match="there is no log 'none'"):
        client.read_rows([*names, "none"])
    with pytest.raises(ConfigError, match="it must name each log once"):
        client.read_rows([names[0], names[0]])


def test_coroutines_have_transactions(cluster: LocalCluster, client: BookKeeper, names: list[str]) -> None:
    async def leave_out(other: aio.AsyncBookKeeper) -> None:
        """The second change has no thread yet when nobody waits for it any more."""
        async with other.transaction() as transaction:
            slow = [asyncio.create_task(transaction.append_rows(names[0], rows(2))) for _ in range(6)]
            late = asyncio.create_task(transaction.append_rows(names[1], rows(2)))
            await asyncio.sleep(0)
            late.cancel()
            await asyncio.gather(*slow, late, return_exceptions=True)

    async def fail(other: aio.AsyncBookKeeper) -> None:
        async with other.transaction() as transaction:
            await transaction.append_rows(names[0], rows(2))
            raise RuntimeError

    async def run() -> None:
        async with await aio.connect(cluster.metadata_uri) as other:
            async with other.transaction(("aio", 1)) as transaction:
                await asyncio.gather(*(transaction.append_rows(name, rows(1)) for name in names))
            assert transaction.versions == dict.fromkeys(names, 2)
            with pytest.raises(RuntimeError):
                await fail(other)
            with pytest.raises(ConfigError, match="one of its changes failed: nothing is committed"):
                await leave_out(other)

    asyncio.run(run())
    assert [ids(client, name) for name in names] == [[0, 1], [0, 1]]


def test_its_text_says_how_it_stands(client: BookKeeper) -> None:
    assert repr(client.transaction()) == "<LogTransaction of 0 logs, not begun>"
    assert isinstance(client.transaction(), LogTransaction)
