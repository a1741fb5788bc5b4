"""Many protobuf messages parsed in step give what Google's parser gives for each, and damage stays with its message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.proto.pulsar_pb2 import KeyValue, SingleMessageMetadata
from bk_spark.pulsar.protobuf_columns import MAX_FIELDS, PADDING, Parsed, parse

NUMBERS, TEXTS = {3: "payload_size", 5: "event_time", 8: "sequence_id"}, {2: "partition_key", 7: "ordering_key"}


def parsed(messages: Sequence[bytes]) -> tuple[Parsed, bytes]:
    data = b"".join([*messages, bytes(PADDING)])
    ends = np.cumsum([len(one) for one in messages], dtype=np.int64)
    starts = ends - np.array([len(one) for one in messages], np.int64)
    return parse(np.frombuffer(data, np.uint8), starts, ends, tuple(NUMBERS), tuple(TEXTS), (1,)), data


def shown(found: Parsed, data: bytes, row: int) -> dict[str, Any]:
    """One row, as Google's message has it."""
    numbers = {name: int(found.varints[field].values[row]) for field, name in NUMBERS.items()}
    numbers["payload_size"] = int(found.varints[3].int32[row])
    present = {name: bool(found.varints[field].present[row]) for field, name in NUMBERS.items()}
    texts = {
        name: data[found.slices[field].starts[row] : found.slices[field].ends[row]]
        if found.slices[field].present[row]
        else None
        for field, name in TEXTS.items()
    }
    places = np.flatnonzero(found.parts[1].rows == row)
    pairs = [data[found.parts[1].starts[one] : found.parts[1].ends[one]] for one in places]
    return {**numbers, **{f"has {name}": there for name, there in present.items()}, **texts, "pairs": pairs}


def googles(message: bytes) -> dict[str, Any] | None:
    try:
        found = SingleMessageMetadata()
        found.MergeFromString(message)
    except DecodeError:
        return None
    numbers = {name: getattr(found, name) for name in NUMBERS.values()}
    present = {f"has {name}": found.HasField(name) for name in NUMBERS.values()}
    key = found.partition_key.encode() if found.HasField("partition_key") else None
    order = found.ordering_key if found.HasField("ordering_key") else None
    pairs = [one.SerializePartialToString() for one in found.properties]
    return {**numbers, **present, "partition_key": key, "ordering_key": order, "pairs": pairs}


MESSAGES = st.builds(
    lambda pairs, fields: SingleMessageMetadata(
        properties=[KeyValue(key=key, value=value) for key, value in pairs], payload_size=1, **fields
    ).SerializeToString(),
    st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=3),
    st.fixed_dictionaries(
        {},
        optional={
            "partition_key": st.text(max_size=200),
            "ordering_key": st.binary(max_size=5),
            "event_time": st.integers(0, 2**64 - 1),
            "sequence_id": st.integers(0, 300),
        },
    ),
)


@given(st.lists(st.one_of(MESSAGES, st.tuples(MESSAGES, MESSAGES).map(b"".join)), max_size=6))
def test_each_row_has_the_fields_that_google_finds(messages: list[bytes]) -> None:
    found, data = parsed(messages)
    assert not found.malformed.any()
    assert [shown(found, data, row) for row in range(len(messages))] == [googles(one) for one in messages]


@given(st.lists(st.one_of(st.binary(max_size=12), MESSAGES.map(lambda one: one[:-1])), min_size=1, max_size=6), MESSAGES)
def test_damage_stays_with_its_message(messages: list[bytes], whole: bytes) -> None:
    found, data = parsed([*messages, whole])
    assert not found.malformed[-1]
    assert shown(found, data, len(messages)) == googles(whole)


@pytest.mark.parametrize(
    ("message", "is_malformed"),
    [
        (b"", False),
        (b"\x08", True),
        (b"\x18\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", False),
        (b"\x18\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", True),
        (b"\x12\x05ab", True),
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", True),
        (b"\xa1\x06" + bytes(8), False),
        (b"\xa1\x06" + bytes(7), True),
        (b"\xa5\x06" + bytes(4), False),
        (b"\xa3\x06", True),
        (b"\x00\x00", True),
        (b"\x1d" + bytes(4), False),
    ],
)
def test_forms_of_fields(message: bytes, is_malformed: bool) -> None:
    found, data = parsed([b"\x18\x05", message, b"\x12\x01k"])
    assert found.malformed.tolist() == [False, is_malformed, False]
    alike, _ = parsed([message] * 3)
    assert alike.malformed.tolist() == [is_malformed] * 3
    assert (shown(found, data, 0)["payload_size"], shown(found, data, 2)["partition_key"]) == (5, b"k")


def test_a_known_field_of_another_kind_is_unknown() -> None:
    found, data = parsed([b"\x1a\x01x\x10\x05"])
    row = shown(found, data, 0)
    assert (row["has payload_size"], row["partition_key"], found.malformed[0]) == (False, None, False)


def test_a_message_with_too_many_fields_is_malformed_and_ends() -> None:
    found, _ = parsed([b"\x18\x05" * (MAX_FIELDS + 1), b"\x18\x05" * MAX_FIELDS])
    assert found.malformed.tolist() == [True, False]
