"""What bad memory, or a bug, may make of a bookie's answer to a read: nothing of it may ever count as absence, or as an entry.

An explicit "no such entry" about an entry that the bookie has is not among it: no digest shows that, no protocol survives it.
"""

from __future__ import annotations

from dataclasses import replace

from bk_spark.entries.batch import EncodedBatch
from bk_spark.entries.crc import crc32c
from bk_spark.entries.recut import cut
from bk_spark.wire.messages import ReadBatch, ReadEnd, Status
from tests.simulation.engines.choices import Choices
from tests.simulation.world.messages import ReadAnswer

FAR = 1_000
"""Entry ids beyond all that a schedule appends."""


def garbled(answer: ReadAnswer, choices: Choices) -> ReadAnswer:
    """The same answer with something wrong in it, if there is anything to be made wrong."""
    places = [place for place, one in enumerate(answer.replies) if isinstance(one, ReadBatch)]
    ends = [place for place, one in enumerate(answer.replies) if isinstance(one, ReadEnd)]
    if ends and (not places or choices.choose(4, "garbled end") == 0):
        return _with(answer, ends[0], ReadEnd(Status.NO_SUCH_ENTRY, FAR, "about another entry"))
    if not places:
        return answer
    place = choices.pick(places, "garbled batch")
    reply = answer.replies[place]
    assert isinstance(reply, ReadBatch)
    return _with(answer, place, ReadBatch(_garbled_batch(reply.batch, choices)))


def _with(answer: ReadAnswer, place: int, reply: ReadBatch | ReadEnd) -> ReadAnswer:
    return ReadAnswer((*answer.replies[:place], reply, *answer.replies[place + 1 :]))


def _garbled_batch(batch: EncodedBatch, choices: Choices) -> EncodedBatch:
    how = choices.choose(4, "garbled how")
    if how == 0:
        return replace(batch, header=replace(batch.header, ledger_id=batch.header.ledger_id + 1))
    if how == 1:
        return cut(batch, batch.header.first_entry_id + 1, batch.header.last_entry_id) or _flipped(batch, choices)
    return _flipped(batch, choices)


def _flipped(batch: EncodedBatch, choices: Choices) -> EncodedBatch:
    """One bit, behind the bookie's own checksum: only the digest tells."""
    body = bytearray(batch.body)
    body[choices.choose(len(body), "garbled byte")] ^= 1 << choices.choose(8, "garbled bit")
    return replace(batch, body=bytes(body), body_crc32c=crc32c(bytes(body)))
