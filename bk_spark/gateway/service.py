"""The calls of Arrow Flight: each from its first byte to its status.

Every call is a stream in both directions here, as it is on the wire. So who calls, and whether there is room, is known before
anything of the request is read. A refusal comes before the look at a log: whoever has no right learns nothing of it.

Imports ``grpc``. The rest of the wing knows of gRPC only what ``OpenCall`` has of it.

Ref: Apache Arrow, Flight.proto.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final

import grpc
import pyarrow as pa

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import ConfigError, GatewayBusyError, UnauthenticatedError
from bk_spark.gateway.access import Access
from bk_spark.gateway.calls.actions import ACTIONS, HEALTH, HEALTH_TEXT, action_of, packed
from bk_spark.gateway.calls.appends import append
from bk_spark.gateway.calls.incoming import IncomingMessages, only_message
from bk_spark.gateway.calls.listing import listed_logs
from bk_spark.gateway.calls.lookups import LookupLogs, look_up
from bk_spark.gateway.calls.open_calls import GatewayCalls, OpenCall
from bk_spark.gateway.calls.reads import SIDE_BY_SIDE_READS, read_of
from bk_spark.gateway.calls.statuses import status_of
from bk_spark.gateway.calls.tails import GatewayTail, tail_schema
from bk_spark.gateway.calls.unexpected_errors import UnexpectedErrors
from bk_spark.gateway.calls.writers import write
from bk_spark.gateway.flight import messages as wire
from bk_spark.gateway.flight.batch_stream import batch_data, schema_data, small_batches
from bk_spark.gateway.flight.requests import (
    AskedAppend,
    AskedTail,
    GivenDescriptor,
    parse_action,
    parse_criteria,
    parse_descriptor,
    parse_exchange,
    parse_put,
    parse_ticket,
)
from bk_spark.gateway.rights import CallerIdentity, Right
from bk_spark.gateway.settings import GatewayConfig
from bk_spark.telemetry.metrics import GATEWAY_BYTES, GATEWAY_CALLS, GATEWAY_ROWS
from bk_spark.tls.peer_name import name_in

Answers = Iterator[bytes]
Requests = Iterator[bytes]

_AUTHORIZATION: Final = "authorization"
_BEARER: Final = "bearer "

NEVER_TOLD: Final = "this gateway has no method Handshake: send the token with each call, as the header authorization: Bearer …"

logger = logging.getLogger(__name__)


class FlightService:
    """Serves one cluster. ``locations`` are those that endpoints name; empty: wherever the question was asked."""

    def __init__(
        self, client: BookKeeper, access: Access, config: GatewayConfig, calls: GatewayCalls, locations: tuple[str, ...] = ()
    ) -> None:
        self._client = client
        self._access = access
        self._config = config
        self._calls = calls
        self._locations = locations
        self._lookups = LookupLogs(client)
        self._unexpected = UnexpectedErrors(time.monotonic)

    def handler(self) -> Any:
        """For gRPC's server."""
        methods = {
            "ListFlights": self._list_flights,
            "GetFlightInfo": self._get_flight_info,
            "GetSchema": self._get_schema,
            "DoGet": self._do_get,
            "DoPut": self._do_put,
            "DoExchange": self._do_exchange,
            "DoAction": self._do_action,
            "ListActions": self._list_actions,
        }
        served = {name: grpc.stream_stream_rpc_method_handler(self._served(name, serve)) for name, serve in methods.items()}
        served["Handshake"] = grpc.stream_stream_rpc_method_handler(_no_handshake)
        return grpc.method_handlers_generic_handler(wire.SERVICE, served)

    # --- a call as a whole

    def _served(self, method: str, serve: Callable[[OpenCall, Requests], Answers]) -> Callable[[Requests, Any], Answers]:
        def behaviour(requests: Requests, context: Any) -> Answers:
            call = OpenCall(method, str(context.peer()), CallerIdentity("unknown"), context, self._calls)
            try:
                self._begin(call)
                with closing(serve(call, requests)) as answers:  # type: ignore[type-var]
                    for answer in answers:
                        with call.waiting_for_caller():
                            yield answer
                        GATEWAY_BYTES.labels("sent").inc(len(answer))
                GATEWAY_CALLS.labels(method, "OK").inc()
            except GeneratorExit:  # the caller has gone
                GATEWAY_CALLS.labels(method, "CANCELLED").inc()
                raise
            except BaseException as problem:
                self._refuse(call, problem)
            finally:
                self._calls.end(call)
                call.release()

        return behaviour

    def _begin(self, call: OpenCall) -> None:
        token, certificate = _shown_by(call.context)
        call.identity = self._access.identify(token, certificate, call.peer)
        self._calls.begin(call)

    def _refuse(self, call: OpenCall, problem: BaseException) -> None:
        """Ends the call with a status: gRPC raises for it."""
        code, sentence = status_of(problem, f"{call.method} of {call.identity} from {call.peer}", self._unexpected)
        if isinstance(problem, GatewayBusyError) and self._calls.is_stopping:
            code = grpc.StatusCode.UNAVAILABLE
        GATEWAY_CALLS.labels(call.method, code.name).inc()
        call.context.abort(code, sentence)

    def _allow(self, call: OpenCall, right: Right, log: str) -> None:
        """Raises AccessRefusedError now, and at each later look once the right is gone."""
        call.log, identity, peer = log, call.identity, call.peer
        call.check = lambda: self._access.check(identity, right, log, peer)
        call.check()

    # --- methods

    def _list_flights(self, call: OpenCall, requests: Requests) -> Answers:
        asked = parse_criteria(wire.decode_criteria(only_message(call, requests)))
        yield from listed_logs(self._client, asked, lambda name: self._access.may_see(call.identity, name), self._locations)

    def _get_flight_info(self, call: OpenCall, requests: Requests) -> Answers:
        descriptor = wire.decode_descriptor(only_message(call, requests))
        asked = parse_descriptor(descriptor)
        self._allow(call, Right.READ, asked.log)
        if isinstance(asked, AskedTail):
            schema = tail_schema(self._client, asked)
            endpoints, records = [wire.Endpoint(asked.ticket, self._locations)], wire.UNKNOWN_TOTAL
        else:
            planned = read_of(self._client, asked)
            schema, endpoints, records = planned.schema, planned.endpoints(self._locations), planned.records
        yield wire.encode_info(schema.serialize().to_pybytes(), descriptor, endpoints, records)

    def _get_schema(self, call: OpenCall, requests: Requests) -> Answers:
        asked = parse_descriptor(wire.decode_descriptor(only_message(call, requests)))
        self._allow(call, Right.READ, asked.log)
        is_tail = isinstance(asked, AskedTail)
        schema = tail_schema(self._client, asked) if is_tail else read_of(self._client, asked).schema  # type: ignore[arg-type]
        yield wire.encode_one(schema.serialize().to_pybytes())

    def _do_get(self, call: OpenCall, requests: Requests) -> Answers:
        asked = parse_ticket(wire.decode_ticket(only_message(call, requests)))
        self._allow(call, Right.READ, asked.log)
        if isinstance(asked, AskedTail):
            yield from self._tail(call, asked)
            return
        planned = read_of(self._client, asked)
        yield schema_data(planned.schema)
        side_by_side = self._calls.count(call.method) <= SIDE_BY_SIDE_READS
        with closing(planned.batches(side_by_side=side_by_side)) as batches:  # type: ignore[type-var]
            for batch in batches:
                yield from self._sent(call, batch)

    def _tail(self, call: OpenCall, asked: AskedTail) -> Answers:
        self._calls.begin_tail(call)
        tail = GatewayTail(self._client, asked, call)
        yield schema_data(tail.schema)
        for batch, position in tail:
            yield from self._sent(call, batch, json.dumps({"next": json.loads(position)}).encode())

    def _sent(self, call: OpenCall, batch: pa.RecordBatch, app_metadata: bytes = b"") -> Answers:
        """Only the last message of a batch has its metadata: behind it all of the batch was given."""
        pieces = list(small_batches(batch))
        for number, piece in enumerate(pieces, 1):
            call.look()
            message = batch_data(piece, app_metadata if number == len(pieces) else b"")
            call.pace(len(message))
            yield message
        GATEWAY_ROWS.labels("read").inc(batch.num_rows)

    def _do_put(self, call: OpenCall, requests: Requests) -> Answers:
        with closing(self._incoming(call, requests)) as messages:
            asked = parse_put(_descriptor_of(messages))
            if asked.merge_schema or (isinstance(asked, AskedAppend) and asked.create):
                self._allow(call, Right.MANAGE, asked.log)
            self._allow(call, Right.APPEND, asked.log)
            if isinstance(asked, AskedAppend):
                yield wire.encode_one(append(self._client, call, messages, asked))
            else:
                yield from map(wire.encode_one, write(self._client, call, messages, asked))

    def _do_exchange(self, call: OpenCall, requests: Requests) -> Answers:
        with closing(self._incoming(call, requests)) as messages:
            asked = parse_exchange(_descriptor_of(messages))
            self._allow(call, Right.READ, asked.log)
            for message in look_up(self._lookups, messages, asked):
                call.pace(len(message))
                yield message

    def _incoming(self, call: OpenCall, requests: Requests) -> IncomingMessages:
        return IncomingMessages(call, requests, self._config.silence_s)

    def _list_actions(self, call: OpenCall, requests: Requests) -> Answers:
        only_message(call, requests)
        for name, action in ACTIONS.items():
            yield wire.encode_action_type(name, f"{action.text}; needs the right to {action.right.value}")
        yield wire.encode_action_type(HEALTH, HEALTH_TEXT)

    def _do_action(self, call: OpenCall, requests: Requests) -> Answers:
        name, body = wire.decode_action(only_message(call, requests))
        if name == HEALTH:
            self._client.list_bookies()
            yield wire.encode_one(packed({"state": "serving"}))
            return
        action = action_of(name)
        asked = parse_action(name, body)
        self._allow(call, action.right, asked.log)
        for result in action.run(self._client, asked):
            yield wire.encode_one(packed(result))


def _descriptor_of(messages: IncomingMessages) -> GivenDescriptor:
    descriptor = messages.first().descriptor
    if descriptor is None:
        raise ConfigError("the descriptor of the stream", None, "its first message must have one")
    return descriptor


def _shown_by(context: Any) -> tuple[str | None, str | None]:
    """The token and the name of the certificate that a caller shows. Raises UnauthenticatedError for another header."""
    token = None
    for name, value in context.invocation_metadata():
        if name == _AUTHORIZATION:
            if token is not None:
                raise UnauthenticatedError("the header authorization came twice: send one")
            if not isinstance(value, str) or value[: len(_BEARER)].lower() != _BEARER:
                raise UnauthenticatedError("the header authorization must be 'Bearer ' and a token")
            token = value[len(_BEARER) :]
    return token, name_in(context.auth_context()) or None


def _no_handshake(requests: Requests, context: Any) -> Answers:
    context.abort(grpc.StatusCode.UNIMPLEMENTED, NEVER_TOLD)
    yield from ()
