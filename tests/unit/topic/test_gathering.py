"""Small answers of bookies are gathered until decoding them pays; no entry is lost, doubled or moved."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bk_spark.topic import gathering
from bk_spark.topic.gathering import gathered


def batches(*sizes: int) -> list[pa.RecordBatch]:
    first = 0
    found = []
    for size in sizes:
        ids = range(first, first + size)
        payloads = pa.array([b"%d" % one for one in ids], pa.binary())
        found.append(pa.record_batch({"entry_id": pa.array(ids, pa.int64()), "payload": payloads}))
        first += size
    return found


def test_small_batches_become_one_and_keep_their_order() -> None:
    [(ids, payloads)] = gathered(batches(1, 2, 3))
    assert ids.tolist() == list(range(6))
    assert payloads.to_pylist() == [b"%d" % one for one in range(6)]


def test_a_batch_is_given_as_soon_as_it_is_large_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "GATHER_ENTRIES", 4)
    assert [len(ids) for ids, _ in gathered(batches(1, 2, 3, 4, 1, 1))] == [6, 4, 2]
    monkeypatch.setattr(gathering, "GATHER_BYTES", 30)
    assert [len(ids) for ids, _ in gathered(batches(1, 2, 3))] == [3, 3]


def test_payloads_are_not_copied() -> None:
    small = batches(2, 3)
    [(_, payloads)] = gathered(small)
    assert [one.buffers()[2].address for one in payloads.chunks] == [one.column(1).buffers()[2].address for one in small]


def test_nothing_is_gathered_of_nothing() -> None:
    assert list(gathered([])) == []
