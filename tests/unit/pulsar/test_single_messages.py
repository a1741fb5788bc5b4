"""The messages of batches are found in jumps where a walk from one to the next finds them, whatever their values look like."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.pulsar import single_messages
from bk_spark.pulsar.protobuf_columns import PADDING
from bk_spark.pulsar.single_messages import Batches, Messages, _walk
from tests.unit.pulsar.entries import Message, batch_payload


def read(payloads: Sequence[bytes], counts: Sequence[int], gap: bytes = b"") -> Messages:
    """Batches at places 0, 1, … with ``gap`` between them."""
    data = b"".join(one + gap for one in payloads)
    sizes = np.array([len(one) for one in payloads], np.int64)
    starts = np.cumsum(sizes + len(gap)) - sizes - len(gap)
    places = np.arange(len(payloads), dtype=np.int64)
    return Batches(data + bytes(PADDING), starts, starts + sizes, places, np.array(counts, np.int64)).read()


def values(found: Messages) -> list[tuple[int, int, bytes]]:
    spans = zip(found.value_starts.tolist(), found.value_ends.tolist(), strict=True)
    cut = [found.data[start:end] for start, end in spans]
    return list(zip(found.owners.tolist(), found.indexes.tolist(), cut, strict=True))


MESSAGES = st.builds(
    Message,
    st.one_of(
        st.binary(max_size=30),
        st.integers(0, 40).map(bytes),
        st.lists(st.binary(max_size=5).map(Message), max_size=3).map(batch_payload),
    ),
    st.dictionaries(st.text(max_size=2), st.text(max_size=200), max_size=2),
    st.fixed_dictionaries({}, optional={"partition_key": st.text(max_size=200), "sequence_id": st.integers(0, 2**64 - 1)}),
)


@given(st.lists(st.lists(MESSAGES, max_size=6), min_size=1, max_size=4), st.sampled_from([b"", b"\0\0\0\2\x18\0", bytes(7)]))
def test_each_message_of_each_batch_is_found(batches: list[list[Message]], gap: bytes) -> None:
    found = read([batch_payload(one) for one in batches], [len(one) for one in batches], gap)
    expected = [(owner, index, one.value) for owner, some in enumerate(batches) for index, one in enumerate(some)]
    assert values(found) == expected
    assert found.good.all()
    assert found.problems == {}


def test_jumps_alone_find_the_messages_of_usual_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_messages, "_walk", lambda payload, count: pytest.fail("it is walked"))
    some = [Message(b"v" * size, {"a": "b"}, {"partition_key": "k" * (size % 200)}) for size in range(300)]
    assert [value for _, _, value in values(read([batch_payload(some)] * 3, [300] * 3))] == [one.value for one in some] * 3


@pytest.mark.parametrize(
    "message",
    [
        Message(b"v", {"a": "x" * 70_000}),
        Message(b"v", {str(number): "" for number in range(100)}),
        Message(b"v", {}, {"partition_key": "k" * 70_000}),
    ],
)
def test_a_batch_that_jumps_do_not_see_through_is_walked(message: Message) -> None:
    some = [Message(b"a"), message, Message(b"b")]
    assert [value for _, _, value in values(read([batch_payload(some)], [3]))] == [b"a", b"v", b"b"]


def test_values_full_of_zeros_are_walked_and_read() -> None:
    some = [Message(b"\0\0\0\0\x18" * 2000), Message(bytes(5000)), Message(b"\0\0\0\2\x18\0" * 900)]
    assert [value for _, _, value in values(read([batch_payload(some)] * 2, [3, 3]))] == [one.value for one in some] * 2


def test_a_batch_with_fewer_messages_than_it_says_is_damaged_and_the_others_are_read() -> None:
    whole = batch_payload([Message(b"a"), Message(b"b")])
    found = read([whole, whole, whole], [2, 3, 2])
    assert [(owner, value) for owner, _, value in values(found)] == [(0, b"a"), (0, b"b"), (2, b"a"), (2, b"b")]
    assert found.problems == {1: "it ends within message 2 of its 3"}


def test_bytes_behind_the_last_message_do_not_count() -> None:
    whole = batch_payload([Message(b"a"), Message(b"b"), Message(b"c")])
    found = read([whole, whole], [1, 3])
    assert [(owner, value) for owner, _, value in values(found)] == [(0, b"a"), (1, b"a"), (1, b"b"), (1, b"c")]


@given(st.binary(max_size=60), st.integers(-1, 4))
def test_whatever_the_bytes_are_jumps_and_walk_agree(payload: bytes, count: int) -> None:
    found = read([payload], [count])
    try:
        walked = _walk(payload, count)[2].tolist()
    except single_messages.DamagedBatchError:
        walked = None
    assert (None if found.problems else found.value_ends.tolist()) == walked


@pytest.mark.parametrize("lie", [2**22, 2**31 - 1])
def test_a_count_that_lies_is_damage_and_allocates_nothing(lie: int) -> None:
    whole = batch_payload([Message(b"a"), Message(b"b")])
    tracemalloc.start()
    try:
        found = read([whole] * 3, [2, lie, 2])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.problems == {1: f"it ends within message 2 of its {lie}"}
    assert [(owner, value) for owner, _, value in values(found)] == [(0, b"a"), (0, b"b"), (2, b"a"), (2, b"b")]
    assert peak < 1_000_000


def test_small_batches_beside_a_large_one_take_memory_for_what_there_is() -> None:
    small, large = batch_payload([Message(b"a")]), batch_payload([Message(b"b")] * 4000)
    tracemalloc.start()
    try:
        found = read([small] * 4000 + [large], [1] * 4000 + [4000])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.owners) == 8000
    assert peak < 10_000_000


def test_zeros_of_a_large_value_are_not_listed() -> None:
    payload = batch_payload([Message(bytes(4_000_000))])
    tracemalloc.start()
    try:
        found = read([payload], [1])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert values(found) == [(0, 0, bytes(4_000_000))]
    assert peak < 7 * len(payload)


def test_a_message_in_the_value_of_the_last_one_is_none_though_the_count_says_so() -> None:
    payload = batch_payload([Message(b"a"), Message(batch_payload([Message(b"x")]))])
    found = read([payload, payload], [3, 2])
    assert list(found.problems) == [0]
    assert [owner for owner, _, _ in values(found)] == [1, 1]


def test_an_unusual_first_message_is_not_passed_over_where_the_count_says_one_less() -> None:
    unusual = b"\0\0\0\4\x40\x01\x18\x03one"  # its sequence id comes before its size
    found = read([unusual + batch_payload([Message(b"two")]), batch_payload([Message(b"b")])], [1, 1])
    assert [value for _, _, value in values(found)] == [b"one", b"b"]
