"""A real server, and requests to it as raw bytes: what it answers, and that it goes on.

The bookie behind it is real, too: what the messages' checks let pass must not upset the storage.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from bk_spark.proto import bookie_pb2 as pb
from bk_spark.wire.messages import MAX_WAIT_MS, Status
from tests.cluster.bookie.served import Served
from tests.soak.fuzz.engine import Target
from tests.soak.fuzz.mutations import spoil_message
from tests.soak.fuzz.storage_targets import MEMORY
from tests.soak.fuzz.wire_targets import requests
from tests.unit.bookie.harness import BOOKIE_ID, Harness

TIMEOUT_S = MAX_WAIT_MS / 1000 + 10
"""A long poll may wait for MAX_WAIT_MS."""
METHODS = tuple(requests())
_STREAMED = {"Add", "Read"}
_REFUSALS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.INVALID_ARGUMENT)
"""What gRPC answers to what is no message of its kind."""


class _Server:
    """Started when it is first asked."""

    def __init__(self) -> None:
        self._served: Served | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    def answer(self, method: str, request: bytes) -> list[bytes]:
        """Every reply, as bytes."""
        call = self._channel.stream_stream(f"/bk_spark.v1.Bookie/{method}")
        return list(call(iter([request]), timeout=TIMEOUT_S))

    @property
    def _channel(self) -> Any:
        if self._served is None:
            self._directory = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
            self._served = Served(Harness(Path(self._directory.name)))
        return self._served._channel

    def close(self) -> None:
        if self._served is not None and self._directory is not None:
            self._served.close()
            self._served.harness.stop()
            self._directory.cleanup()
            self._served = None


def targets() -> list[Target]:
    server = _Server()

    def run(data: bytes) -> None:
        method = METHODS[(data[0] if data else 0) % len(METHODS)]
        try:
            replies = server.answer(method, data[1:])
        except grpc.RpcError as problem:
            if problem.code() not in _REFUSALS or "Unexpected" in (problem.details() or ""):
                raise
            raise _RefusedError(f"{method}: {problem.code().name} {problem.details()}") from None
        _check(method, replies)

    def seeds() -> Sequence[bytes]:
        return [bytes([METHODS.index(method)]) + one.SerializeToString() for method, some in requests().items() for one in some]

    return [Target("real server", seeds, run, _spoil, (_RefusedError,), server.close)]


class _RefusedError(Exception):
    """gRPC refused a message, or the bookie did."""


_REPLIES: dict[str, Any] = {
    "Add": pb.AddReply,
    "Read": pb.ReadReply,
    "ReadLastAddConfirmed": pb.ReadLastAddConfirmedReply,
    "StoreLastAddConfirmed": pb.StoreLastAddConfirmedReply,
    "Force": pb.ForceReply,
    "Describe": pb.DescribeReply,
    "Administer": pb.AdministerReply,
}


def _check(method: str, replies: list[bytes]) -> None:
    """One reply at least, each with a status; the last says how it went."""
    assert replies, f"{method}: no reply"
    last = _REPLIES[method].FromString(replies[-1])
    status = Status(last.status)
    if status is not Status.OK:
        raise _RefusedError(f"{method}: {status.name} {getattr(last, 'detail', '')}")


def _spoil(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    method = METHODS[data[0] % len(METHODS)] if data else METHODS[0]
    kind = type(requests()[method][0])
    same = [one[1:] for one in others if one[:1] == data[:1]]
    return data[:1] + spoil_message(kind)(data[1:], same, chance)


assert BOOKIE_ID == "bookie-1"  # what the seeds are addressed to
