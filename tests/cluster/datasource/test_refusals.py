"""What cannot be read ends in one sentence that names the thing and says what to do. Without Spark."""

from __future__ import annotations

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import BookKeeperError
from tests.cluster.datasource.direct import Direct, micro_batches
from tests.cluster.datasource.refusals import batch_reads, stream_reads
from tests.unit.datasource.batches import numbers


def test_each_bad_read_is_refused_in_one_sentence(direct: Direct, log: str) -> None:
    direct.write(log, numbers(1, 2), password="right")
    for options, sentence in batch_reads(log).values():
        with pytest.raises(BookKeeperError) as refused:
            direct.read(**options)
        assert sentence in str(refused.value)


def test_each_stream_that_cannot_be_read_is_refused_in_one_sentence(direct: Direct, log: str, bookkeeper: BookKeeper) -> None:
    for number in (1, 2):
        direct.write(log, numbers(number))
    start = direct.stream(log, startingOffsets="earliest").initialOffset()
    store = bookkeeper.logs
    store.truncate(log, store.names.uid(log), store.reader.snapshot(log).ledgers[1].ledger_id)
    for options, sentence in stream_reads(log, start).values():
        with pytest.raises(BookKeeperError) as refused:
            list(micro_batches(direct.stream(**options)))
        assert sentence in str(refused.value)
