"""The rows of a batch, apart by the log that each names."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bk_spark.datasource.write.several_attempt import by_name
from bk_spark.errors import ConfigError


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], []),
        (["a", "a"], [("a", [0, 1])]),
        (["b", "a", "b", "c", "a"], [("b", [0, 2]), ("a", [1, 4]), ("c", [3])]),
    ],
)
def test_rows_come_by_name_in_their_order(names: list[str], expected: list[tuple[str, list[int]]]) -> None:
    rows = pa.record_batch({"n": pa.array(range(len(names)), pa.int64())})
    found = by_name(pa.array(names, pa.string()), rows)
    assert [(name, part.column("n").to_pylist()) for name, part in found] == expected


@pytest.mark.parametrize("names", [[b"a\xff"], [b"a", b"a\xff"]])
def test_a_name_that_is_no_text_is_refused(names: list[bytes]) -> None:
    """Spark's strings may hold any bytes, and Arrow does not look at them."""
    rows = pa.record_batch({"n": pa.array(range(len(names)), pa.int64())})
    with pytest.raises(ConfigError, match=r"log name is b'a\\xff': it is no text in UTF-8"):
        list(by_name(pa.array(names, pa.binary()).view(pa.string()), rows))
