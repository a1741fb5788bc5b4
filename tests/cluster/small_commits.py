"""Many small commits, made through the client alone: what streaming sinks leave in a log."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.spark_schema import to_arrow
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.stored.values import CommitKind, CommittedLedger
from bk_spark.rows.codec import PayloadFormat, RowEncoder

SCHEMA = StructType([StructField("id", LongType()), StructField("text", StringType())])


def one_row_commits(client: BookKeeper, log: str, first: int, count: int, password: bytes = b"") -> None:
    """Rows ``first`` to ``first + count - 1``, each in a ledger and a commit of its own."""
    arrow = to_arrow(SCHEMA)
    encoder = RowEncoder(log, arrow, PayloadFormat(compression="none", max_rows=100, max_bytes=1 << 20))
    for number in range(first, first + count):
        [(payload, rows)] = encoder.encode(pa.record_batch([[number], [f"row {number}"]], schema=arrow))
        job = client.logs.jobs.begin(log)
        writer = client.create_ledger(job=job, password=password)
        last = writer.append(payload.to_pybytes())
        writer.close()
        ledger = CommittedLedger(writer.ledger_id, last, writer.length, rows)
        client.logs.commit(job, CommitRequest(CommitKind.APPEND, (ledger,), schema_json=SCHEMA.json()))
        client.logs.jobs.finish(job, [ledger.ledger_id])


def entry_ledgers(client: BookKeeper, log: str, sizes: list[int]) -> list[bytes]:
    """A ledger and a commit for each size, of so many entries; gives back all payloads in order."""
    payloads: list[bytes] = []
    opened = client.open_log(log, create=True)
    for number, size in enumerate(sizes):
        with client.create_ledger() as writer:
            some = [f"entry {number}.{place}".encode() for place in range(size)]
            if some:
                writer.append_batch(some)
            payloads += some
        opened.append_ledgers([writer.ledger_id])
    return payloads
