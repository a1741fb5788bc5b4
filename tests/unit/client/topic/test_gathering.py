"""Small answers of bookies are gathered until decoding them pays; no entry is lost, doubled or moved."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bk_spark.client.topic import gathering
from bk_spark.client.topic.gathering import gathered


def batches(*sizes: int) -> list[pa.RecordBatch]:
    first = 0
    found = []
    for size in sizes:
        found.append(pa.record_batch({"entry_id": pa.array(range(first, first + size), pa.int64())}))
        first += size
    return found


def test_small_batches_become_one_and_keep_their_order() -> None:
    [found] = gathered(batches(1, 2, 3))
    assert found.column("entry_id").to_pylist() == list(range(6))


def test_a_batch_is_given_as_soon_as_it_is_large_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "GATHER_ENTRIES", 4)
    assert [one.num_rows for one in gathered(batches(1, 2, 3, 4, 1, 1))] == [6, 4, 2]
    monkeypatch.setattr(gathering, "GATHER_BYTES", 16)
    assert [one.num_rows for one in gathered(batches(1, 2, 3))] == [3, 3]


def test_a_large_batch_passes_uncopied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "GATHER_ENTRIES", 4)
    [large] = batches(9)
    assert next(gathered([large])) is large


def test_nothing_is_gathered_of_nothing() -> None:
    assert list(gathered([])) == []
