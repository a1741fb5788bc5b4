"""Requests to one bookie of a cluster, past the client: what exactly does *this* bookie answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import TracebackType

import grpc
import pyarrow as pa

from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import DigestType
from bk_spark.entries.batch import decode, encode, seal
from bk_spark.entries.digest import Digester, master_key
from bk_spark.local.cluster import LocalBookie, LocalCluster
from bk_spark.metadata.ledger_ids import raise_ledger_ids
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.proto.bookie_pb2_grpc import BookieStub
from bk_spark.quorum import DENSE
from bk_spark.wire.codec import (
    decode_administer_reply,
    decode_read_reply,
    encode_add_request,
    encode_administer_request,
    encode_read_request,
)
from bk_spark.wire.messages import (
    MAX_MESSAGE_BYTES,
    AddRequest,
    AdministerReply,
    AdminOperation,
    ReadBatch,
    ReadEnd,
    ReadRequest,
    Status,
)

KEY = master_key(b"")
DIGESTER = Digester(DigestType.CRC32C, b"")
OPTIONS = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES), ("grpc.max_send_message_length", MAX_MESSAGE_BYTES)]
TIMEOUT_S = 20


def allow_any_id(cluster: LocalCluster, highest: int = 2 * 10**9) -> None:
    """Let tests add to ledgers that nobody created, with ids up to ``highest``: bookies refuse ids that were never issued."""
    with BookKeeper(cluster.metadata_uri) as client:
        raise_ledger_ids(client.metadata_store, client.znodes, highest)


class AskedBookie:
    """To be used in a ``with`` statement. Batches are dense and of one entry; a connection that broke gives UNKNOWN."""

    def __init__(self, bookie: LocalBookie) -> None:
        self._bookie = bookie
        self._channel = grpc.insecure_channel(bookie.address, options=OPTIONS)
        self._stub = BookieStub(self._channel)

    def __enter__(self) -> AskedBookie:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._channel.close()

    def add(self, ledger_id: int, entry_id: int, payload: bytes, *, recovery: bool = False) -> Status:
        """An add of one entry, of a ledger whose entries are all of this size."""
        array = pa.array([payload], pa.binary())
        before = entry_id * len(payload)
        sealed = seal(DIGESTER, ledger_id, entry_id, array, length_before=before, last_add_confirmed=entry_id - 1)
        batch = encode(sealed, DigestType.CRC32C)
        assert batch is not None
        answered = threading.Event()

        def requests() -> Iterator[pb.AddRequest]:
            yield encode_add_request(AddRequest(1, self._bookie.bookie_id, KEY, batch, recovery=recovery))
            answered.wait(TIMEOUT_S)

        try:
            return Status(next(self._stub.Add(requests(), timeout=TIMEOUT_S)).status)
        except (grpc.RpcError, StopIteration):
            return Status.UNKNOWN
        finally:
            answered.set()

    def read(self, ledger_id: int, first: int, last: int, *, fence: bool = False) -> tuple[dict[int, bytes], Status]:
        """The payloads by entry id, and how the answer ended."""
        found: dict[int, bytes] = {}
        while True:
            try:
                end = self._read_once(
                    ReadRequest(self._bookie.bookie_id, ledger_id, KEY, first, last, DENSE, 4 << 20, fence), found
                )
            except grpc.RpcError:
                return found, Status.UNKNOWN
            first = end.next_entry_id
            if end.status is not Status.OK or first > last:
                return found, end.status

    def administer(self, operation: AdminOperation) -> AdministerReply:
        message = encode_administer_request(self._bookie.bookie_id, operation)
        return decode_administer_reply(self._stub.Administer(message, timeout=TIMEOUT_S))

    def _read_once(self, request: ReadRequest, found: dict[int, bytes]) -> ReadEnd:
        for message in self._stub.Read(encode_read_request(request), timeout=TIMEOUT_S):
            reply = decode_read_reply(message.SerializeToString())
            if isinstance(reply, ReadEnd):
                return reply
            assert isinstance(reply, ReadBatch)
            entries = decode(reply.batch)
            assert entries.matching(DIGESTER).all()
            found |= dict(zip((int(one) for one in entries.entry_ids), entries.payloads.to_pylist(), strict=True))
        raise AssertionError("a read has an end")
