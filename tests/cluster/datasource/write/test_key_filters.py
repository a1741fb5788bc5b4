"""Entries of a log with keys say which keys they have, whoever wrote them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.rows.codec import RowDecoder
from tests.cluster.datasource.direct import Direct

KEY = ("key",)


def rows(*logs: str) -> pa.RecordBatch:
    numbers, names = range(200 * len(logs)), [log for log in logs for _ in range(200)]
    return pa.record_batch({"key": [f"k{one}" for one in numbers], "n": list(numbers), "log": names})


def filters(bookkeeper: BookKeeper, log: str) -> list[bool]:
    """Whether each entry of a log has a filter of its keys."""
    opened = bookkeeper.open_log(log)
    decoder = RowDecoder(opened.schema)
    payloads = [one.as_buffer() for batch in opened.read() for one in batch.column("payload")]
    return [decoder.key_filter(one, "an entry", KEY) is not None for one in payloads]


@pytest.mark.parametrize("is_keyed", [True, False])
def test_a_write_to_one_log_makes_them_where_the_log_has_a_key(
    direct: Direct, bookkeeper: BookKeeper, log: str, is_keyed
) -> None:
    direct.write(log, rows("-"), **({"partitionKey": "key", "lanes": 2} if is_keyed else {}))
    assert set(filters(bookkeeper, log)) == {is_keyed}


def test_a_write_to_several_logs_makes_them_for_each_log_that_has_a_key(direct, bookkeeper, log) -> None:
    keyed, plain = f"{log}-keyed", f"{log}-plain"
    direct.write(keyed, rows("-").drop_columns(["log"]), partitionKey="key", lanes=2)
    direct.write(plain, rows("-").drop_columns(["log"]))
    direct.write(None, rows(keyed, plain), logColumn="log")
    assert set(filters(bookkeeper, keyed)) == {True}
    assert set(filters(bookkeeper, plain)) == {False}
    assert bookkeeper.open_log(keyed).get("k150")["n"].to_pylist() == [150]
