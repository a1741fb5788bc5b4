"""The frames in which Apache's bookies are sent a batch, made once for all bookies of a write set."""

from __future__ import annotations

from collections import OrderedDict

from bk_spark.config import APACHE_FRAME_BYTES
from bk_spark.entries.batch import EncodedBatch, decode
from bk_spark.entries.digest import APACHE_KEY_BYTES, payload_sizes
from bk_spark.errors import EntryTooLargeError
from bk_spark.wire.apache import version_2
from bk_spark.wire.apache.frame_limits import most_payload_bytes
from bk_spark.wire.messages import AddRequest

ADDS_AT_ONCE = 250
"""ADDs of one write: enough that a write costs little beside them, and a twentieth of those that may be unanswered."""

MOST_KEPT = 4
"""Batches whose frames are kept for the next bookie, a few MiB. Bookies are sent a batch at the same moment; those that were
behind have its frames made again."""

Frames = list[tuple[int, bytes]]
"""A number of ADDs, and their frames."""


class Framing:
    """Of one client. Runs on the event loop."""

    def __init__(self, frame_bytes: int = APACHE_FRAME_BYTES) -> None:
        """``frame_bytes``: the largest frame that Apache's bookies take. A larger one ends a connection, and all adds on it."""
        self.most_payload_bytes = most_payload_bytes(frame_bytes)
        self._kept: OrderedDict[tuple[int, bytes, bool], tuple[EncodedBatch, Frames]] = OrderedDict()
        """By the identity of the batch, which is kept with its frames, so that no other batch can have it."""

    def frames(self, request: AddRequest) -> Frames:
        """An ADD for each entry, in pieces that are written at once. Raises EntryTooLargeError."""
        key = id(request.batch), request.master_key, request.recovery
        if key not in self._kept:
            self._kept[key] = request.batch, _frames(request, self.most_payload_bytes)
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return self._kept[key][1]


def _frames(request: AddRequest, most_bytes: int) -> Frames:
    batch, digest_type = decode(request.batch), request.batch.header.digest_type
    assert digest_type is not None  # no client adds whole entries
    largest = int(payload_sizes(batch.payloads).max())
    if largest > most_bytes:
        raise EntryTooLargeError(largest, most_bytes)
    flags = version_2.Flag.RECOVERY_ADD | version_2.Flag.HIGH_PRIORITY if request.recovery else version_2.Flag.NONE
    pieces = [batch.slice(start, ADDS_AT_ONCE) for start in range(0, len(batch), ADDS_AT_ONCE)]
    key = request.master_key[:APACHE_KEY_BYTES]
    return [(len(piece), version_2.pack_adds(piece, digest_type, key, flags)) for piece in pieces]
