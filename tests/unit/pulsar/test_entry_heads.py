"""What stands before the payload of an entry is read in each of its forms; sizes that do not fit are damage of that entry."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.proto.pulsar_pb2 import BrokerEntryMetadata, MessageMetadata
from bk_spark.pulsar.entry_heads import PRODUCER, PUBLISH_TIME, SEQUENCE_ID, Heads, read_heads
from bk_spark.pulsar.protobuf_columns import PADDING
from tests.unit.pulsar.entries import framed, metadata

BROKER = BrokerEntryMetadata(broker_timestamp=1_700_000_000_000, index=3)
WHOLE = framed(metadata(), b"payload")
MAGIC_BROKER, MAGIC_CHECKSUM = b"\x0e\x02", b"\x0e\x01"


def heads(entries: Sequence[bytes]) -> tuple[Heads, bytes]:
    data = b"".join([*entries, bytes(PADDING)])
    sizes = np.array([len(one) for one in entries], np.int64)
    ends = np.cumsum(sizes)
    return read_heads(np.frombuffer(data, np.uint8), ends - sizes, ends), data


def payloads(entries: Sequence[bytes]) -> list[bytes | None]:
    """The payload of each entry; None for one that is damaged."""
    found, data = heads(entries)
    spans = zip(found.payload_starts.tolist(), found.payload_ends.tolist(), found.good.tolist(), strict=True)
    return [data[start:end] if good else None for start, end, good in spans]


FORMS = st.builds(
    lambda payload, broker, checksum, producer: framed(
        metadata(producer_name=producer), payload, broker=broker, checksum=checksum
    ),
    st.binary(max_size=9),
    st.sampled_from([None, BROKER, BrokerEntryMetadata()]),
    st.booleans(),
    st.text(max_size=200),
)


def test_an_entry_written_by_hand() -> None:
    head = b"\x0a\x01p\x10\x05\x18\x09"  # producer "p", sequence id 5, published at 9 ms
    entry = MAGIC_BROKER + b"\0\0\0\x02\x10\x07" + MAGIC_CHECKSUM + b"????" + b"\0\0\0\x07" + head + b"value"
    found, data = heads([entry])
    producer = found.metadata.slices[PRODUCER]
    numbers = [int(found.metadata.varints[field].values[0]) for field in (SEQUENCE_ID, PUBLISH_TIME)]
    assert (data[producer.starts[0] : producer.ends[0]], numbers, payloads([entry])) == (b"p", [5, 9], [b"value"])


@pytest.mark.parametrize("broker", [None, BROKER, BrokerEntryMetadata()])
@pytest.mark.parametrize("checksum", [True, False])
def test_each_form_of_a_head_is_read_between_others(broker: BrokerEntryMetadata | None, checksum: bool) -> None:
    entry = framed(metadata(), b"v", broker=broker, checksum=checksum)
    assert payloads([WHOLE, entry, framed(metadata(), b"", checksum=False)]) == [b"payload", b"v", b""]


@pytest.mark.parametrize("missing", ["producer_name", "sequence_id", "publish_time"])
def test_metadata_without_a_field_that_pulsar_requires_are_damage(missing: str) -> None:
    head = metadata()
    head.ClearField(missing)
    encoded = head.SerializePartialToString()
    assert payloads([WHOLE, len(encoded).to_bytes(4, "big") + encoded, WHOLE]) == [b"payload", None, b"payload"]


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        MAGIC_BROKER,
        MAGIC_BROKER + b"\xff\xff\xff\xff",
        MAGIC_BROKER + b"\0\0\0\x01",
        MAGIC_BROKER + b"\x7f\xff\xff\xff" + WHOLE,
        MAGIC_CHECKSUM + b"????",
        MAGIC_CHECKSUM + b"????\0\0\0",
        b"\xff\xff\xff\xff" + bytes(20),
        b"\x80\0\0\0" + bytes(20),
        b"\0\0\0\x15" + bytes(20),
    ],
)
def test_a_size_that_does_not_fit_is_damage_of_its_entry_wherever_it_is(entry: bytes) -> None:
    assert payloads([WHOLE, entry, WHOLE, entry]) == [b"payload", None, b"payload", None]


def test_metadata_that_reach_into_the_next_entry_are_damage() -> None:
    encoded = metadata().SerializeToString()
    cut = len(encoded).to_bytes(4, "big") + encoded[:-1]
    assert payloads([cut, encoded[-1:] + WHOLE]) == [None, None]


@given(st.lists(FORMS, max_size=6))
def test_payloads_and_required_fields_are_those_that_google_finds(entries: list[bytes]) -> None:
    found, data = heads(entries)
    for place, entry in enumerate(entries):
        start, end = int(found.payload_starts[place]), int(found.payload_ends[place])
        before = sum(map(len, entries[:place]))
        size = len(metadata(producer_name=_producer(found, data, place)).SerializeToString())
        head = MessageMetadata.FromString(data[start - size : start])
        assert found.good[place]
        assert (head.sequence_id, end) == (int(found.metadata.varints[SEQUENCE_ID].values[place]), before + len(entry))


@given(st.lists(st.one_of(st.binary(max_size=30), FORMS.map(lambda one: one[: len(one) // 2])), max_size=5))
def test_whatever_the_bytes_are_payloads_lie_in_their_entries_and_the_next_one_is_read(entries: list[bytes]) -> None:
    found, _ = heads([*entries, WHOLE])
    ends = np.cumsum([len(one) for one in [*entries, WHOLE]])
    starts = ends - [len(one) for one in [*entries, WHOLE]]
    assert found.good[-1]
    assert np.all(
        (found.payload_starts >= starts) & (found.payload_starts <= found.payload_ends) & (found.payload_ends <= ends)
    )


def _producer(found: Heads, data: bytes, place: int) -> str:
    name = found.metadata.slices[PRODUCER]
    return data[name.starts[place] : name.ends[place]].decode()
