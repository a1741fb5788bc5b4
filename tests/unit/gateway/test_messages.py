"""The messages of Flight, against pyarrow's own: what one writes, the other reads as the same."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from bk_spark.errors import ConfigError
from bk_spark.gateway.flight import messages as wire
from bk_spark.gateway.flight.requests import GivenDescriptor

SCHEMA = pa.schema([("id", pa.int64()), ("item", pa.string())])


def test_descriptors_tickets_and_actions_are_read_as_pyarrow_writes_them() -> None:
    path, command = flight.FlightDescriptor.for_path("a", "ü"), flight.FlightDescriptor.for_command(b"\x00{}")
    assert wire.decode_descriptor(path.serialize()) == GivenDescriptor(("a", "ü"))
    assert wire.decode_descriptor(command.serialize()) == GivenDescriptor(command=b"\x00{}")
    assert wire.decode_ticket(flight.Ticket(b"t" * 300).serialize()) == b"t" * 300
    assert wire.decode_action(flight.Action("show", b"{}").serialize()) == ("show", b"{}")


@pytest.mark.parametrize("descriptor", [GivenDescriptor(("orders",)), GivenDescriptor(command=b"{}")])
def test_pyarrow_reads_an_info_with_all_that_is_in_it(descriptor) -> None:
    endpoints = [wire.Endpoint(b"one"), wire.Endpoint(b"two", ("grpc://a:1", "grpc+tls://b:2"))]
    packed = wire.encode_info(SCHEMA.serialize().to_pybytes(), descriptor, endpoints, wire.UNKNOWN_TOTAL, app_metadata=b"m")
    info = flight.FlightInfo.deserialize(packed)
    assert info.schema == SCHEMA
    assert (info.total_records, info.total_bytes, info.ordered, info.app_metadata) == (-1, -1, True, b"m")
    assert [one.ticket.ticket for one in info.endpoints] == [b"one", b"two"]
    assert [[place.uri.decode() for place in one.locations] for one in info.endpoints] == [[], ["grpc://a:1", "grpc+tls://b:2"]]
    assert wire.decode_descriptor(info.descriptor.serialize()) == descriptor


def test_pyarrow_reads_a_schema_and_a_result() -> None:
    assert flight.SchemaResult.deserialize(wire.encode_one(SCHEMA.serialize().to_pybytes())).schema == SCHEMA
    assert flight.Result.deserialize(wire.encode_one(b"x" * 200)).body.to_pybytes() == b"x" * 200


def test_a_message_of_a_stream_is_read_as_it_was_written() -> None:
    found = wire.decode_data(wire.encode_data(b"head", b"body" * 100_000, b"meta"))
    assert (bytes(found.header), bytes(found.body), found.app_metadata) == (b"head", b"body" * 100_000, b"meta")
    assert found.descriptor is None


def test_unknown_fields_of_every_kind_are_left_out() -> None:
    more = b"\x28\x96\x01" + b"\x31" + bytes(8) + b"\x3d" + bytes(4) + b"\x42\x02hi"
    assert wire.decode_ticket(more + flight.Ticket(b"t").serialize() + more) == b"t"


@pytest.mark.parametrize(
    "data",
    [b"\x0a", b"\x0a\x05abc", b"\x0a\xff\xff\xff\xff\x0f", b"\xff" * 11, b"\x00", b"\x0b", b"\x08\x01" * 3000, b"\x31\x00"],
)
def test_what_is_no_message_is_refused(data) -> None:
    with pytest.raises(ConfigError, match="it is no message of Arrow Flight"):
        wire.decode_ticket(data)


def test_a_descriptor_of_no_type_and_a_path_that_is_no_text_are_refused() -> None:
    with pytest.raises(ConfigError, match="the type of the descriptor is 0"):
        wire.decode_descriptor(b"")
    with pytest.raises(ConfigError, match="it is not UTF-8"):
        wire.decode_descriptor(b"\x08\x01\x1a\x01\xff")
