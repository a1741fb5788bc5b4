"""What a client, a log, a writer and a reader show of themselves in a notebook: what they are of, how they stand, no secret."""

from __future__ import annotations

import asyncio
import textwrap

import pyarrow as pa

import bk_spark
from bk_spark import aio
from bk_spark.bookkeeper import BookKeeper
from bk_spark.local.cluster import LocalCluster

SECRET = b"sesame"


def test_each_object_says_what_it_is_of_and_how_it_stands(cluster: LocalCluster) -> None:
    uri = cluster.metadata_uri
    client = BookKeeper(uri)
    shown, bookies = [repr(client), repr(cluster)], len(cluster.bookies)
    assert shown == [
        f"<BookKeeper at {uri}, open>",
        f"<LocalCluster at {uri} in {cluster.data_dir}, {bookies} bookies>",
    ]

    writer = client.create_ledger(password=SECRET)
    writer.append(b"x")
    reader = client.open_ledger(writer.ledger_id, SECRET, recover=False)
    shown += [repr(writer), repr(reader)]
    assert shown[-2] == f"<WriteHandle: ledger {writer.ledger_id}, open, last add confirmed 0>"
    assert shown[-1].startswith(f"<ReadHandle: ledger {writer.ledger_id}, not closed, last add confirmed ")
    recovered = client.open_ledger(writer.ledger_id, SECRET)
    assert repr(recovered) == f"<ReadHandle: ledger {writer.ledger_id}, closed, last add confirmed 0>"

    log = client.open_log("shown", create=True, password=SECRET)
    assert repr(log) == f"<Log 'shown' at {uri}>"
    with log.open_writer() as leader:
        assert repr(leader) == f"<LogWriteHandle: the writer of log 'shown', ledger {leader.ledger_id}, open>"
    assert repr(leader).endswith(", closed>")

    rows = client.open_log("shown rows", create=True, password=SECRET)
    with rows.open_row_writer(pa.schema([("id", pa.int64())])) as row_writer:
        row_writer.append({"id": 1})
        shown.append(repr(row_writer))
    assert shown[-1].startswith("<RowWriteHandle: the row writer of log 'shown rows', ledger ")
    assert repr(row_writer) == "<RowWriteHandle: the row writer of log 'shown rows', closed>"
    with rows.tail_rows("earliest", timeout_s=0) as tail:
        assert repr(tail) == f"<RowTail at {tail.position}>"

    client.close()
    assert repr(client) == f"<BookKeeper at {uri}, closed>"
    assert not any("sesame" in one for one in shown)


def test_a_displaced_leader_says_what_ended_it(cluster: LocalCluster) -> None:
    with BookKeeper(cluster.metadata_uri) as client:
        log = client.open_log("displaced", create=True)
        first = log.open_writer()
        with log.open_writer() as second:
            second.append(b"x")
            assert isinstance(first.append_async(b"y").exception(timeout=60), Exception)
        assert repr(first).endswith("ended by LedgerFencedError>")


def test_the_objects_of_asyncio_say_the_same(cluster: LocalCluster) -> None:
    async def look() -> list[str]:
        async with await aio.connect(cluster.metadata_uri) as client:
            log = await client.open_log("shown by asyncio", create=True)
            async with await log.open_writer() as leader, await client.create_ledger() as writer:
                return [repr(client), repr(log), repr(leader), repr(writer)]

    client, log, leader, writer = asyncio.run(look())
    assert client == f"<AsyncBookKeeper at {cluster.metadata_uri}, open>"
    assert log == f"<AsyncLog 'shown by asyncio' at {cluster.metadata_uri}>"
    assert leader.startswith("<AsyncLogWriteHandle: the writer of log 'shown by asyncio', ledger ")
    assert writer.startswith("<AsyncWriteHandle: ledger ")
    assert writer.endswith("open, last add confirmed -1>")


def test_the_example_of_the_package_s_help_runs_as_it_stands(cluster, capsys) -> None:
    code = "\n".join(line for line in (bk_spark.__doc__ or "").splitlines() if line.startswith("    "))
    here = textwrap.dedent(code).replace("zk://host:2181/ledgers", cluster.metadata_uri)
    exec(here.replace('"orders"', '"orders of the help"'), {})  # other tests write to a log 'orders' in the same cluster
    assert "apples" in capsys.readouterr().out
