"""Two gateways with tokens and grants over a cluster in memory, and what callers do there as functions."""

from __future__ import annotations

import itertools
import json
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from bk_spark.bookkeeper import BookKeeper
from bk_spark.gateway.granted_access import GrantedAccess, granted_access
from bk_spark.gateway.rights import Right
from bk_spark.gateway.server import Gateway
from bk_spark.gateway.settings import GatewayConfig
from bk_spark.telemetry.logging_setup import AUDIT_LOGGER
from tests.cluster.gateway.flight_calls import command, connected, until
from tests.soak.callers.model import MORE, Outcome, Row, World
from tests.soak.interrupts.bookies import ZNODES
from tests.soak.latest.memory_cluster import URI, memory_cluster
from tests.unit.gateway.access_world import Operator

JUDGE = "judge"
"""The caller who may do everything, and looks at every log after each call."""

_KINDS = {"id": pa.int64(), "text": pa.string(), MORE: pa.int64()}
_OUTCOMES: dict[type[Exception], Outcome] = {
    flight.FlightUnauthenticatedError: Outcome.UNKNOWN_CALLER,
    flight.FlightUnauthorizedError: Outcome.REFUSED,
    pa.ArrowKeyError: Outcome.NO_LOG,
    pa.ArrowInvalid: Outcome.WRONG,
}
CALL_S = 30.0
"""Of a call: longer is a difference."""


class Stage:
    """What a history plays on."""

    def __init__(self, clients: Sequence[flight.FlightClient], accesses: Sequence[GrantedAccess], operator: Operator) -> None:
        self._clients = clients
        self.world = World()
        self._accesses = accesses
        self._operator = operator
        self._tokens: dict[str, str] = {}
        """Of each name the newest one, also when it was revoked."""
        self.create_token(JUDGE)
        self.grant(JUDGE, "*", *(right.value for right in Right))

    # Operators

    def create_token(self, name: str) -> None:
        self._tokens[name] = self._operator.create(name).text
        self.world.callers.add(name)
        self._wait()

    def revoke_token(self, name: str) -> None:
        self._operator.revoke(name)
        self.world.callers.discard(name)
        self._wait()

    def grant(self, name: str, pattern: str, *rights: str) -> None:
        self._operator.grant(f"token:{name}", pattern, *map(Right, rights))
        self.world.grants |= {(name, pattern, right) for right in rights}
        self._wait()

    def remove(self, name: str, pattern: str, right: str) -> None:
        self._operator.remove(f"token:{name}", pattern, Right(right))
        self.world.grants.discard((name, pattern, right))
        self._wait()

    def _wait(self) -> None:
        """Until both gateways know: an answer before that may be of either."""
        head = self._operator.access.read().head
        until(lambda: all(one._held.now().content.head == head for one in self._accesses))

    # Calls. Each gives back its answer, or the Outcome that it ended with

    def append(self, place: int, caller: str, given: pa.Table, end: bytes, /, **fields: object) -> Any:
        def call() -> Any:
            writer, answers = self._clients[place].do_put(command(**fields), given.schema, self._options(caller))
            try:
                writer.write_table(given, max_chunksize=3)
                if end:
                    writer.write_metadata(end)
                writer.done_writing()
                answer = answers.read()
            finally:
                writer.close()
            return json.loads(answer.to_pybytes())

        return ended(call)

    def act(self, place: int, caller: str, name: str, /, **fields: object) -> Any:
        def call() -> Any:
            action = flight.Action(name, json.dumps(fields).encode())
            return [json.loads(one.body.to_pybytes()) for one in self._clients[place].do_action(action, self._options(caller))]

        return ended(call)

    def plan(self, place: int, caller: str, /, **fields: object) -> Any:
        """Tickets, and the number of rows."""

        def call() -> Any:
            info = self._clients[place].get_flight_info(command(**fields), self._options(caller))
            return [one.ticket.ticket for one in info.endpoints], info.total_records

        return ended(call)

    def redeem(self, place: int, caller: str, ticket: bytes) -> Any:
        return ended(lambda: self._clients[place].do_get(flight.Ticket(ticket), self._options(caller)).read_all().to_pylist())

    def follow(self, place: int, caller: str, log: str, count: int) -> Any:
        """The first rows that a tail gives from the beginning."""

        def call() -> Any:
            asked = json.dumps({"log": log, "tail": True, "start": "earliest"}).encode()
            tail = self._clients[place].do_get(flight.Ticket(asked), self._options(caller))
            found: list[Row] = []
            while len(found) < count:
                found += tail.read_chunk().data.to_pylist()
            tail.cancel()
            return found

        return ended(call)

    def list(self, place: int, caller: str) -> Any:
        def call() -> Any:
            infos = self._clients[place].list_flights(b"", self._options(caller))
            return {one.descriptor.path[0].decode(): one.total_records for one in infos}

        return ended(call)

    def _options(self, caller: str) -> flight.FlightCallOptions:
        token = self._tokens.get(caller, caller)
        headers = [(b"authorization", b"Bearer " + token.encode())] if token else []
        return flight.FlightCallOptions(timeout=CALL_S, headers=headers)


def ended(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except tuple(_OUTCOMES) as problem:
        return _OUTCOMES[type(problem)]
    except flight.FlightInternalError as problem:  # pyarrow's for ABORTED, and for what must not come
        if "gRPC returned aborted error" not in str(problem):
            raise
        return Outcome.REPLACED


def table(rows: Sequence[Row], columns: Sequence[str]) -> pa.Table:
    return pa.table({name: pa.array([row.get(name) for row in rows], _KINDS[name]) for name in columns})


@contextmanager
def stage() -> Iterator[Stage]:
    """In memory but for the connections of its callers."""
    times = itertools.count(1_700_000_000_000, 7)
    logger = logging.getLogger(AUDIT_LOGGER)
    with memory_cluster(lambda: next(times)), ExitStack() as undo:
        clients, accesses = [], []
        for _ in range(2):
            client = undo.enter_context(BookKeeper(URI))
            access = granted_access(client.metadata_store, client.znodes)
            undo.callback(access.close)
            gateway = undo.enter_context(Gateway(client, access, GatewayConfig()))
            clients.append(undo.enter_context(connected(gateway.port)))
            accesses.append(access)
        operator = Operator(undo.enter_context(BookKeeper(URI)).metadata_store, ZNODES)
        undo.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.CRITICAL)
        yield Stage(clients, accesses, operator)


def chosen(chance: random.Random, *weighted: tuple[int, Any]) -> Any:
    return chance.choices([one for _, one in weighted], [weight for weight, _ in weighted])[0]
