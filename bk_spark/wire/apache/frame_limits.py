"""How large an entry may be where Apache's clients or bookies are: what they take in one frame is limited.

The limit is their setting ``nettyMaxFrameSizeBytes``, 5 MiB by default. Netty counts the whole frame, with the four bytes of
its size. A larger frame ends the connection: a client then can neither read the entry nor recover its ledger. So no entry is
taken that would not fit into every frame that may carry it::

    ADD, READ and BATCH_READ of version 2     28, 28 and 40 bytes around the entry
    ADD and READ of version 3                 up to 77 and 66
    READ_LAC of version 3                     up to 87, with the proof of an explicit last add confirmed

Ref: Apache BookKeeper's BookieNettyServer and PerChannelBookieClient; Netty's LengthFieldBasedFrameDecoder.
"""

from __future__ import annotations

from bk_spark.entries.digest import DIGEST_BYTES

ROOM_BYTES = 88
"""What a frame has around an entry at most."""

_HEAD_BYTES = 32 + max(DIGEST_BYTES.values())
"""What an entry has before its payload: four numbers and the digest."""


def most_entry_bytes(frame_bytes: int) -> int:
    """The largest entry for those who take frames of ``frame_bytes``: its numbers, its digest and its payload."""
    return frame_bytes - ROOM_BYTES


def most_payload_bytes(frame_bytes: int) -> int:
    """The largest payload, whatever the ledger's digest."""
    return most_entry_bytes(frame_bytes) - _HEAD_BYTES
