"""Chunked messages are put together as one consumer of the whole topic does it, wherever the topic is cut for readers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.pulsar import chunks as chunks_module
from bk_spark.pulsar.chunks import ChunkAssembler
from bk_spark.pulsar.columns import DECODED_SCHEMA
from bk_spark.pulsar.messages import decode
from bk_spark.pulsar.selection import of_chunks
from tests.unit.pulsar.entries import NONE, ZLIB, chunks, framed, metadata, single

Part = tuple[str, int, int]
"""A chunk: its message, its id, and how many the message has. An id of -1 is a message without chunks."""


def entry_of(part: Part) -> bytes:
    uuid, chunk_id, count = part
    if chunk_id < 0:
        return single(uuid.encode())
    shared = {"uuid": uuid, "num_chunks_from_msg": count, "chunk_id": chunk_id, "uncompressed_size": 2 * count}
    return framed(metadata(**shared), f"{uuid}{chunk_id}".encode())


def rows_of(parts: Sequence[Part], first: int = 0) -> pa.RecordBatch:
    ids = np.arange(first, first + len(parts), dtype=np.int64)
    return decode(ids, pa.array([entry_of(part) for part in parts], pa.binary())).rows


def consumed(parts: Sequence[Part]) -> tuple[list[tuple[int, str]], int]:
    """What one consumer of the whole topic gets: the place of each message, and its value; and how many it loses. As plainly as
    it goes."""
    there: dict[str, int] = {}
    ended: set[str] = set()
    found, lost = [], 0
    for place, (uuid, chunk_id, count) in enumerate(parts):
        if chunk_id < 0:
            found.append((place, uuid))
            continue
        if chunk_id == 0:
            there[uuid] = 0
        if uuid not in there:
            lost += chunk_id == count - 1 and uuid not in ended
            ended |= {uuid} if chunk_id == count - 1 else set()
            continue
        if chunk_id < there[uuid]:
            continue
        if chunk_id > there[uuid]:
            del there[uuid]
            ended.add(uuid)
            lost += 1
            continue
        there[uuid] += 1
        if chunk_id == count - 1:
            del there[uuid]
            ended.add(uuid)
            found.append((place, "".join(f"{uuid}{one}" for one in range(count))))
    return found, lost


def begins(parts: Sequence[Part], uuids: frozenset[str]) -> int:
    """The place behind which the last chunk 0 of all these messages lies; 0 if one of them has none."""
    last = {uuid: place for place, (uuid, chunk_id, _) in enumerate(parts) if chunk_id == 0}
    return min(last.get(uuid, 0) for uuid in uuids)


def read(parts: Sequence[Part], first: int, beyond: int, step: int, *, far: bool = True) -> tuple[list[tuple[int, str]], int]:
    """What a reader of one part gets, which looks back where it is told to, ``far`` or only as far as it must, and is given
    ``step`` entries at a time."""
    assembler, found, lost = ChunkAssembler(), [], 0
    for start in range(first, beyond, step):
        rows = rows_of(parts[start : min(beyond, start + step)], start)
        missing = assembler.needs_look_back(rows)
        if missing:
            back = 0 if far else begins(parts[:first], missing)
            assembler.prime([of_chunks(rows_of(parts[back:first], back), missing)], missing)
        assembled = assembler.feed(1, rows)
        whole = assembled.rows
        found += zip(whole.column("entry_id").to_pylist(), whole.column("value").to_pylist(), strict=True)
        lost += assembled.incomplete
    return [(place, value.decode()) for place, value in found], lost


@st.composite
def topics(draw: st.DrawFn) -> list[Part]:
    """Chunks of up to three messages, interleaved, some twice, some missing; a producer may begin anew."""
    counts = {uuid: draw(st.integers(2, 4)) for uuid in "abc"}
    streams = []
    for uuid, count in counts.items():
        ids: list[int] = []
        for _ in range(draw(st.integers(0, 3))):
            ids += range(draw(st.integers(0, count - 1)), draw(st.integers(1, count)))
        ids += draw(st.lists(st.integers(0, count - 1), max_size=5))
        streams.append([(uuid, chunk_id, count) for chunk_id in ids if draw(st.integers(0, 9))])
    streams.append([("plain", -1, 0)] * draw(st.integers(0, 3)))
    order = draw(st.permutations([index for index, one in enumerate(streams) for _ in one]))
    left = [iter(one) for one in streams]
    return [next(left[index]) for index in order]


@given(topics(), st.data())
def test_readers_of_all_parts_together_get_what_one_consumer_gets(parts: list[Part], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(parts)), max_size=3)) | {0, len(parts)})
    step, far = data.draw(st.integers(1, 4)), data.draw(st.booleans())
    read_parts = [read(parts, first, beyond, step, far=far) for first, beyond in itertools.pairwise(cuts)]
    found = [one for messages, _ in read_parts for one in messages]
    assert (found, sum(lost for _, lost in read_parts)) == consumed(parts)


@pytest.mark.parametrize("compression", [NONE, ZLIB])
def test_a_message_is_decompressed_as_a_whole_and_lies_at_its_last_chunk(compression: int) -> None:
    value = bytes(range(256)) * 8
    stored = chunks(value, 100, "u", compression=compression, partition_key="k")
    rows = decode(np.arange(len(stored), dtype=np.int64), pa.array(stored, pa.binary())).rows
    whole = ChunkAssembler().feed(1, rows).rows
    assert whole.column("value").to_pylist() == [value]
    assert (whole.column("entry_id")[0].as_py(), whole.column("key")[0].as_py()) == (len(stored) - 1, "k")


def test_a_message_that_cannot_be_decompressed_is_named() -> None:
    stored = [
        framed(metadata(uuid="u", num_chunks_from_msg=2, chunk_id=index, compression=ZLIB, uncompressed_size=9), b"no")
        for index in range(2)
    ]
    rows = decode(np.arange(2, dtype=np.int64), pa.array(stored, pa.binary())).rows
    found = ChunkAssembler().feed(1, rows)
    assert (found.rows.num_rows, [one.entry_id for one in found.unreadable]) == (0, [1])


def test_a_chunk_that_leaves_a_gap_ends_its_message() -> None:
    parts = [("a", 0, 3), ("a", 2, 3), ("a", 1, 3), ("a", 2, 3)]
    assert read(parts, 0, 4, 1) == ([], 1)


def test_messages_with_missing_chunks_are_counted_once() -> None:
    parts = [("a", 0, 3), ("b", 1, 2), ("a", 2, 3), ("b", 1, 2)]
    assert ChunkAssembler().feed(1, rows_of(parts)).incomplete == 2


def test_chunks_that_were_sent_again_are_no_loss() -> None:
    parts = [("a", 0, 3), ("a", 1, 3), ("a", 0, 3), ("a", 1, 3), ("a", 1, 3), ("a", 2, 3), ("a", 1, 3), ("a", 2, 3)]
    assert read(parts, 0, 8, 8) == ([(5, "a0a1a2")], 0)


def test_messages_keep_their_own_values_beside_plain_ones_and_tombstones() -> None:
    tombstone = single(b"", null_value=True)
    stored = [*chunks(b"abcd", 2, "u"), tombstone, single(b"x"), *chunks(b"efgh", 2, "v")]
    rows = decode(np.arange(len(stored), dtype=np.int64), pa.array(stored, pa.binary())).rows
    found = ChunkAssembler().feed(1, rows).rows
    found.validate(full=True)
    assert found.schema == DECODED_SCHEMA
    assert found.column("value").to_pylist() == [b"abcd", None, b"x", b"efgh"]


def test_rows_without_chunks_pass_as_they_are() -> None:
    rows = rows_of([("plain", -1, 0)] * 3)
    assembler = ChunkAssembler()
    assert assembler.feed(1, rows).rows is rows
    assert assembler.needs_look_back(rows) == frozenset()


def test_of_too_many_bytes_that_wait_the_oldest_message_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks_module, "MAX_PENDING_BYTES", 3)
    parts = [("a", 0, 2), ("b", 0, 2), ("b", 1, 2), ("a", 1, 2)]
    found = ChunkAssembler().feed(1, rows_of(parts))
    assert (found.rows.column("value").to_pylist(), found.incomplete) == ([b"b0b1"], 1)


def test_a_message_that_began_in_the_part_is_not_looked_for_before_it() -> None:
    parts = [("a", 0, 2), ("a", 1, 2), ("a", 0, 2), ("a", 1, 2)]
    assembler = ChunkAssembler()
    assembler.feed(1, rows_of(parts[2:3], 2))
    assert assembler.needs_look_back(rows_of(parts[3:], 3)) == frozenset()
    assert read(parts, 2, 4, 1) == ([(3, "a0a1")], 0)


def test_only_a_message_whose_beginning_is_unknown_is_looked_for_and_only_once() -> None:
    rows = rows_of([("a", 1, 3), ("b", 0, 2), ("b", 1, 2), ("plain", -1, 0)], 5)
    assembler = ChunkAssembler()
    assert assembler.needs_look_back(rows) == frozenset("a")
    assembler.prime([], frozenset("a"))
    assert assembler.needs_look_back(rows) == frozenset()


def test_one_message_alone_may_have_more_bytes_than_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks_module, "MAX_PENDING_BYTES", 3)
    assert read([("a", chunk_id, 4) for chunk_id in range(4)], 0, 4, 1) == ([(3, "a0a1a2a3")], 0)


def test_bytes_wait_only_until_their_message_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks_module, "MAX_PENDING_BYTES", 4)
    ends = [("a", 0, 2), ("a", 1, 2), ("b", 0, 3), ("b", 2, 3), ("c", 0, 2), ("c", 0, 2)]
    found, lost = read([*ends, ("d", 0, 2), ("c", 1, 2), ("d", 1, 2)], 0, 9, 1)
    assert (found, lost) == ([(1, "a0a1"), (7, "c0c1"), (8, "d0d1")], 1)


def test_a_message_that_grows_too_large_is_named_where_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks_module, "MAX_WHOLE_BYTES", 5)
    parts = [("a", 0, 4), ("a", 1, 4), ("a", 2, 4), ("a", 3, 4), ("b", 0, 2), ("b", 1, 2)]
    found = ChunkAssembler().feed(1, rows_of(parts))
    assert (found.rows.column("value").to_pylist(), found.incomplete) == ([b"b0b1"], 0)
    assert [(one.entry_id, one.problem.endswith("more than 5 bytes")) for one in found.unreadable] == [(2, True)]
    assembler = ChunkAssembler()
    assembler.prime([rows_of(parts[:3])], frozenset("a"))
    behind = assembler.feed(1, rows_of(parts[3:], 3))
    assert (behind.rows.num_rows, behind.unreadable, behind.incomplete) == (1, (), 0)


def test_messages_that_are_too_large_together_are_read_in_smaller_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks_module, "MAX_WHOLE_BYTES", 5)
    parts = [("a", 0, 2), ("a", 1, 2), ("b", 0, 2), ("b", 1, 2)]
    assert [one.entry_id for one in ChunkAssembler().feed(1, rows_of(parts)).unreadable] == [3]
    assert read(parts, 0, 4, 2) == ([(1, "a0a1"), (3, "b0b1")], 0)
