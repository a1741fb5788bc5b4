"""Callers who mean harm: ``python -m tests.cluster.gateway.hostile_callers KIND PORT TOKEN LOG SECONDS SEED``.

It prints ``ready`` once its harm is done in full, and at the end what became of its calls, as JSON: kind of answer → how often.

- ``connections``: 1,000 are open at once, most of them without a call; each tenth makes one and stays.
- ``guesses``: tokens that are none, from 16 threads, as fast as they are answered.
- ``endless``: appends that never end, without a number of rows.
- ``stalled``: readers that take one message and stop.
- ``unsaid``: calls whose request never comes.
- ``garbage``: spoilt messages to each method, with a token that holds and without.
"""

from __future__ import annotations

import json
import random
import resource
import secrets
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import grpc
import numpy as np
import pyarrow as pa

from bk_spark.gateway.flight import messages as wire
from bk_spark.gateway.flight.batch_stream import batch_data, schema_data
from bk_spark.gateway.flight.requests import GivenDescriptor
from bk_spark.gateway.tokens import new_token
from tests.soak.fuzz.mutations import spoil_bytes, spoil_json

CONNECTIONS = 1_000
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""Of HTTP/2, and empty settings."""
GUESSERS, WRITERS, STALLED, UNSAID, SPOILERS = 16, 8, 24, 24, 4
BATCH = pa.record_batch({"id": np.arange(8_192), "wide": np.random.default_rng(1).integers(0, 2**62, 8_192)})
"""128 KiB that do not shrink."""
METHODS = ("DoGet", "DoPut", "DoExchange", "DoAction", "GetFlightInfo", "GetSchema", "ListFlights", "ListActions")
EXPECTED = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "UNAUTHENTICATED", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "ABORTED"}
"""What garbage may be answered with."""

_END_S = 60.0
"""Of a call that the gateway is to end."""


class Hostile:
    def __init__(self, port: int, token: str, log: str, seconds: float, seed: int) -> None:
        self._address = f"127.0.0.1:{port}"
        self._port = port
        self._token = token
        self._log = log
        self._until = time.monotonic() + seconds
        self._seed = seed
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()

    # Each kind

    def connections(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * CONNECTIONS)), hard))
        opened: list[socket.socket] = []
        channels = []
        for number in range(CONNECTIONS):
            if number % 10 == 0:
                channels.append(self._channel())
                self._count(self._call(channels[-1], "DoAction", [_action("health")]))
                continue
            with suppress(OSError):
                opened.append(socket.create_connection(("127.0.0.1", self._port), timeout=10))
                if number % 2:
                    opened[-1].sendall(PREFACE)
        self.counts["connections"] = len(opened) + len(channels)
        self._ready()
        time.sleep(max(0.0, self._until - time.monotonic()))
        for one in (*opened, *channels):
            one.close()

    def guesses(self) -> None:
        self._ready()
        self._side_by_side(GUESSERS, self._guess)

    def endless(self) -> None:
        self._ready()
        self._side_by_side(WRITERS, self._append_without_end)

    def stalled(self) -> None:
        self._hold(STALLED, "DoGet", lambda: iter([_ticket(self._log)]), takes_one=True)

    def unsaid(self) -> None:
        waiting = threading.Event()

        def nothing() -> Iterator[bytes]:
            waiting.wait(_END_S)
            yield from ()

        self._hold(UNSAID, "DoGet", nothing, takes_one=False)
        waiting.set()

    def garbage(self) -> None:
        self._ready()
        self._side_by_side(SPOILERS, self._spoil)

    # How

    def _guess(self, number: int) -> None:
        with self._channel() as channel:
            while time.monotonic() < self._until:
                token = new_token(secrets.token_bytes).text if number % 2 else secrets.token_urlsafe(50)
                self._count(self._call(channel, "DoAction", [_action("health")], token))

    def _append_without_end(self, number: int) -> None:
        def messages() -> Iterator[bytes]:
            yield _descriptor(self._log) + schema_data(BATCH.schema)
            while time.monotonic() < self._until:
                self._count("batches")
                yield batch_data(BATCH)

        with self._channel() as channel:
            while time.monotonic() < self._until:
                self._count(self._call(channel, "DoPut", messages()))

    def _hold(self, count: int, method: str, requests: Callable[[], Iterator[bytes]], *, takes_one: bool) -> None:
        channel = self._channel()
        calls, timeout_s = [], max(0.0, self._until - time.monotonic()) + _END_S
        for _ in range(count):
            call = channel.stream_stream(_path(method))
            calls.append(call(requests(), metadata=self._metadata(self._token), timeout=timeout_s))
            if takes_one:
                with suppress(grpc.RpcError):
                    next(calls[-1])
        self._ready()
        time.sleep(max(0.0, self._until - time.monotonic()))
        for call in calls:
            with suppress(grpc.RpcError):
                for _ in call:  # what was on its way; behind it comes the status
                    pass
            self._count(call.code().name)
        channel.close()

    def _spoil(self, number: int) -> None:
        chance = random.Random(self._seed * 100 + number)
        seeds = _seeds(self._log)
        with self._channel() as channel:
            while time.monotonic() < self._until:
                method = chance.choice(METHODS)
                seed = chance.choice(seeds)
                spoilt = [_spoilt(seed, seeds, chance) for _ in range(chance.choice((0, 1, 1, 1, 2, 3)))]
                token = self._token if chance.random() < 0.9 else ""
                status = self._call(channel, method, spoilt, token, most=50)
                self._count(status)
                lasts = status == "DEADLINE_EXCEEDED" and b'"tail"' in b"".join(spoilt)  # nothing spoilt it: it waits for rows
                if status not in EXPECTED and not lasts:
                    self._count(f"UNEXPECTED {status} of {method}: {spoilt!r:.500}")

    def _call(self, channel: Any, method: str, requests: Any, token: str | None = None, most: int = 1 << 30) -> str:
        """Its status. After ``most`` answers it is cancelled: OK."""
        shown = self._token if token is None else token
        call = channel.stream_stream(_path(method))(iter(requests), metadata=self._metadata(shown), timeout=_END_S)
        try:
            for number, _ in enumerate(call, 1):
                if number >= most:
                    call.cancel()
                    return "OK"
        except grpc.RpcError:
            details = call.details() or ""
            if "Traceback" in details or "/bk_spark/" in details:
                self._count(f"UNEXPECTED sentence: {details:.300}")
        return str(call.code().name)

    def _metadata(self, token: str) -> list[tuple[str, str]]:
        return [("authorization", f"Bearer {token}")] if token else []

    def _channel(self) -> Any:
        return grpc.insecure_channel(self._address, [("grpc.use_local_subchannel_pool", 1)])

    def _side_by_side(self, count: int, work: Callable[[int], None]) -> None:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()

    def _ready(self) -> None:
        print("ready", flush=True)

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1


def _path(method: str) -> str:
    return f"/{wire.SERVICE}/{method}"


def _ticket(log: str, **fields: object) -> bytes:
    return wire.encode_one(json.dumps({"log": log, **fields}).encode())


def _action(name: str, **fields: object) -> bytes:
    """An Action has the form of an ActionType: a name and a text."""
    return wire.encode_action_type(name, json.dumps(fields) if fields else "")


def _descriptor(log: str, **fields: object) -> bytes:
    """As the field of a message that is followed by the others."""
    return wire.encode_one(wire.encode_descriptor(GivenDescriptor(command=json.dumps({"log": log, **fields}).encode())))


def _seeds(log: str) -> list[bytes]:
    """Good messages of each kind."""
    asked: list[dict[str, Any]] = [
        {},
        {"columns": ["id"], "where": "id > 5 AND wide < 7", "endpoints": 3},
        {"version": 1, "start": [1, 0], "end": [9, 9], "lane": [0]},
        {"view": "latest"},
        {"tail": True, "start": "earliest"},
        {"continuous": True},
        {"rows": 10, "application": ["spoiler", 1], "partition_key": ["id"], "lanes": 4, "merge_schema": True},
    ]
    small = BATCH.slice(0, 10)
    return [
        *(_ticket(log, **fields) for fields in asked),
        *(_descriptor(log, **fields) + schema_data(BATCH.schema) for fields in asked),
        *(wire.encode_descriptor(GivenDescriptor(command=json.dumps({"log": log, **fields}).encode())) for fields in asked),
        wire.encode_descriptor(GivenDescriptor((log,))),
        batch_data(small),
        batch_data(small, b'{"end": true}'),
        *(_action(name, log=log) for name in ("show", "versions", "compact", "health", "truncate")),
    ]


def _spoilt(seed: bytes, seeds: Sequence[bytes], chance: random.Random) -> bytes:
    """One of ten is good as it is: what follows it is then looked at."""
    if chance.random() < 0.1:
        return seed
    at = seed.find(b"{")
    if at < 0 or chance.random() < 0.5:
        return spoil_bytes(seed, seeds, chance)
    end = seed.rfind(b"}") + 1
    spoilt = spoil_json(seed[at:end], [], chance)
    return wire.encode_one(spoilt) if seed[:1] == b"\x0a" else seed[:at] + spoilt + seed[end:]


def main() -> None:
    kind, port, token, log, seconds, seed = sys.argv[1:]
    hostile = Hostile(int(port), token, log, float(seconds), int(seed))
    getattr(hostile, kind)()
    print(json.dumps(hostile.counts), flush=True)


if __name__ == "__main__":
    main()
