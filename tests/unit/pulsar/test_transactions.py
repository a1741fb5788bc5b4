"""Which messages of transactions count, and how far a stream may read before one that is open."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.pulsar import transactions
from bk_spark.pulsar.messages import decode
from bk_spark.pulsar.positions import Position
from bk_spark.pulsar.transactions import Fates, OpenTransactions
from tests.unit.pulsar.entries import marker, single

COMMIT, ABORT = 21, 22
Step = tuple[str, int]
"""``message``, ``commit`` or ``abort``, and the transaction; 0 for none."""


def rows_of(steps: Sequence[Step], first: int = 0) -> pa.RecordBatch:
    made = {
        "message": lambda number: single(b"v", **({"txnid_most_bits": 1, "txnid_least_bits": number} if number else {})),
        "commit": lambda number: marker(COMMIT, 1, number),
        "abort": lambda number: marker(ABORT, 1, number),
        "other": lambda number: marker(10, 1, number),
    }
    stored = [made[what](number) for what, number in steps]
    ids = np.arange(first, first + len(stored), dtype=np.int64)
    return decode(ids, pa.array(stored, pa.binary())).rows


def test_messages_of_committed_transactions_and_of_none_count() -> None:
    rows = rows_of([("message", 0), ("message", 1), ("message", 2), ("message", 3), ("commit", 1), ("abort", 2)])
    fates = Fates()
    fates.learn(rows)
    assert fates.committed_mask(rows).to_pylist() == [True, True, False, False, True, True]
    assert fates.unknown(rows) == {(1, 3)}


def test_other_markers_say_nothing_of_a_transaction() -> None:
    rows = rows_of([("message", 1), ("other", 1)])
    fates = Fates()
    fates.learn(rows)
    assert fates.unknown(rows) == {(1, 1)}


def test_a_fate_may_be_learnt_later() -> None:
    rows = rows_of([("message", 1)])
    fates = Fates()
    fates.learn(rows)
    assert fates.unknown(rows) == {(1, 1)}
    fates.learn(rows_of([("commit", 1)]))
    assert fates.unknown(rows) == set()
    assert fates.committed_mask(rows).to_pylist() == [True]


def test_a_message_behind_a_commit_opens_its_transaction_again_and_one_behind_an_abort_is_passed_over() -> None:
    for marker_of, end in (("commit", Position(5, 2)), ("abort", Position(5, 4))):
        opened = OpenTransactions()
        opened.feed(5, rows_of([("message", 1), (marker_of, 1), ("message", 1), ("message", 0)]))
        assert opened.readable_until(Position(5, 4)) == end


def test_only_so_many_aborted_transactions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "MAX_ABORTED", 1)
    opened = OpenTransactions()
    opened.feed(5, rows_of([("abort", 1), ("abort", 2), ("message", 2), ("message", 1)]))
    assert opened.readable_until(Position(5, 4)) == Position(5, 3)


STEPS = st.lists(st.tuples(st.sampled_from(["message", "message", "commit", "abort", "other"]), st.integers(0, 3)), max_size=12)


@given(STEPS, st.data())
def test_a_stream_reads_up_to_the_first_message_of_the_oldest_open_transaction(steps: list[Step], data: st.DataObject) -> None:
    begun: dict[int, int] = {}
    aborted = set()
    for place, (what, number) in enumerate(steps):
        if what == "message" and number and number not in aborted:
            begun.setdefault(number, place)
        elif what in ("commit", "abort"):
            begun.pop(number, None)
            aborted |= {number} if what == "abort" else set()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(steps)), max_size=3)) | {0, len(steps)})
    opened = OpenTransactions()
    for first, beyond in itertools.pairwise(cuts):
        opened.feed(5, rows_of(steps[first:beyond], first))
    assert opened.readable_until(Position(5, len(steps))) == Position(5, min(begun.values(), default=len(steps)))


def test_of_earlier_markers_aborts_alone_count_since_a_transaction_may_go_on_behind_a_commit() -> None:
    earlier, fates = Fates(), Fates()
    earlier.learn(rows_of([("abort", 1), ("commit", 2)]))
    fates.learn_aborts(earlier)
    assert fates.unknown(rows_of([("message", 1), ("message", 2)])) == {(1, 2)}
