"""What an append holds is free once it is over: Arrow's reader keeps it alive where something leads from there back to it."""

from __future__ import annotations

import gc
import weakref
from typing import Any, cast

import pyarrow as pa
import pytest

from bk_spark.errors import ConfigError
from bk_spark.gateway.calls.appends import WholeStream
from bk_spark.gateway.flight.batch_stream import batch_data, schema_data
from bk_spark.gateway.flight.messages import FlightData, decode_data
from bk_spark.gateway.flight.requests import AskedAppend

BATCH = pa.record_batch({"id": [1, 2, 3]})


class Given:
    """Messages in a list."""

    def __init__(self) -> None:
        self._messages = iter([schema_data(BATCH.schema), batch_data(BATCH)])

    def next(self) -> FlightData | None:
        message = next(self._messages, None)
        return None if message is None else decode_data(message)


class Call:
    is_over = False


def stream_of(messages: Given, rows: int) -> WholeStream:
    return WholeStream(cast(Any, Call()), cast(Any, messages), AskedAppend(log="orders", rows=rows))


@pytest.mark.parametrize("rows", [3, 4, 2])
def test_an_append_that_is_over_however_it_ended_keeps_neither_its_messages_nor_itself(rows: int) -> None:
    messages = Given()
    stream = stream_of(messages, rows)
    try:
        assert stream.reader().read_all().num_rows == rows
    except ConfigError:
        assert rows != 3
    left = [weakref.ref(one) for one in (stream, messages)]
    del stream, messages
    gc.collect()
    assert [one() for one in left] == [None, None]
