"""Entries of topics → their messages, many at a time. Pure.

An entry holds one message, a batch of them, a chunk of one, or something of the broker's own: ``columns.py`` says how each
becomes rows. What the messages of a batch do not say of themselves, their entry says for all of them.

An entry that is damaged gives no rows and is named; it does not disturb the others.

Ref: docs/formats.md, "Pulsar's entries".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.entries.batch import binaries, int64s
from bk_spark.entries.digest import payload_sizes, payloads_in_a_row
from bk_spark.pulsar import entry_heads as entry
from bk_spark.pulsar import single_messages as single
from bk_spark.pulsar.compression import MAX_INFLATED_BYTES, NONE, DamagedPayloadError, decompress
from bk_spark.pulsar.entry_heads import read_heads
from bk_spark.pulsar.properties import properties_of
from bk_spark.pulsar.protobuf_columns import PADDING, Slices, Varints, parse
from bk_spark.pulsar.rows import NO_ROWS, bools, ids_of, int32s, kept_rows, merged, spread, timestamps, uint64s
from bk_spark.pulsar.single_messages import Batches, Messages
from bk_spark.pulsar.slices import cut_out, not_text

TURN_BYTES: Final = 64 * 1024 * 1024
"""Most bytes that are decoded at once, counted after decompression. Decoding takes up to eight times as much memory."""

MAX_TOGETHER_BYTES: Final = 512 * 1024 * 1024
"""Most bytes that one call of ``decode`` takes, counted after decompression. A column of bytes holds four times as much."""

_MAX_MS: Final = (2**63 - 1) // 1000
"""The latest time in milliseconds that a timestamp of microseconds can hold."""

_KEY_NAME, _KEY_VALUE = 1, 2
"""The fields of EncryptionKeys that are read."""

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Columns = dict[str, pa.Array]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An entry that cannot be read, and why."""

    entry_id: int
    problem: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of some entries in DECODED_SCHEMA, in their order, and the entries that cannot be read."""

    rows: pa.RecordBatch
    unreadable: tuple[Unreadable, ...]


def decode(entry_ids: Ints, payloads: pa.BinaryArray | pa.ChunkedArray) -> Decoded:
    """Decode whole entries of one ledger, ascending by id, of less than 2 GiB. About 1 MiB or more at a time is fastest.

    Compressed entries that together are more than MAX_TOGETHER_BYTES are unreadable here: ``decode_in_turns`` reads them.
    """
    return _Decoder(entry_ids, payloads).run()


def decode_in_turns(entry_ids: Ints, payloads: pa.BinaryArray | pa.ChunkedArray) -> Iterator[Decoded]:
    """The same, however much the entries are after decompression: mostly in one turn, else in turns of about TURN_BYTES."""
    decoder = _Decoder(entry_ids, payloads)
    ends = decoder.turns()
    if len(ends) == 1:
        yield decoder.run()
        return
    for begin, end in pairwise([0, *ends]):
        yield decode(entry_ids[begin:end], payloads.slice(begin, end - begin))


class _Decoder:
    """One call of ``decode``. Places are numbers of entries in it.

    Of each entry: whether it is a chunk, encrypted (locked), or plain, which is neither of these nor a marker.
    """

    def __init__(self, entry_ids: Ints, payloads: pa.BinaryArray | pa.ChunkedArray) -> None:
        self._bytes, ends = _in_a_row(payloads)
        self._data = np.frombuffer(self._bytes, np.uint8)
        self._ids = entry_ids
        self._inflated_bytes = 0
        self._heads = read_heads(self._data, ends[:-1], ends[1:])
        self._is_chunk = self._number(entry.CHUNKS).int32 > 1
        self._is_locked = np.zeros(len(self._ids), np.bool_)
        self._is_locked[self._heads.metadata.parts[entry.ENCRYPTION_KEYS].rows] = True
        self._is_plain = ~(self._number(entry.MARKER_TYPE).present | self._is_locked | self._is_chunk)
        self._problems: dict[int, str] = dict.fromkeys(np.flatnonzero(~self._heads.good).tolist(), "it is no entry of a topic")

    def turns(self) -> list[int]:
        """Where each turn ends, excluded."""
        is_packed = self._is_plain & self._good() & (self._number(entry.COMPRESSION).int32 != NONE)
        sizes = np.minimum(self._number(entry.UNCOMPRESSED_SIZE).values, np.uint64(MAX_INFLATED_BYTES)).astype(np.int64)
        sums = np.cumsum(np.where(is_packed, sizes, 0))
        ends: list[int] = []
        before = 0
        while not ends or ends[-1] < len(sums):
            begin = ends[-1] if ends else 0
            end = max(int(np.searchsorted(sums, before + TURN_BYTES, side="right")), min(begin + 1, len(sums)))
            ends.append(end)
            before = int(sums[end - 1]) if end else 0
        return ends

    def run(self) -> Decoded:
        self._check_heads()
        batched = self._is_plain & self._number(entry.MESSAGES).present
        read = [batches.read() for batches in self._batches(batched & self._good())]
        for messages in read:
            self._problems |= {place: f"its batch is damaged: {problem}" for place, problem in messages.problems.items()}
            for place in np.unique(messages.owners[~messages.good]).tolist():
                self._problems[place] = "the metadata of a message in its batch are damaged"
        shared = self._shared()
        found = [self._alone(shared, batched), *(self._of_batches(shared, messages) for messages in read)]
        return Decoded(self._in_order(found), self._unreadable())

    def _good(self) -> Flags:
        good = np.ones(len(self._ids), np.bool_)
        good[list(self._problems)] = False
        return good

    def _number(self, field: int) -> Varints:
        return self._heads.metadata.varints[field]

    def _check_heads(self) -> None:
        for field in (entry.PUBLISH_TIME, entry.EVENT_TIME):
            self._refuse(self._number(field).values > _MAX_MS, "it has a time that no clock shows")
        chunks, ids = self._number(entry.CHUNKS).int32, self._number(entry.CHUNK_ID).int32
        self._refuse(self._is_chunk & ((ids < 0) | (ids >= chunks)), "it is a chunk that its message does not have")
        self._refuse(self._is_chunk & ~self._heads.metadata.slices[entry.UUID].present, "it is a chunk of no message")

    def _refuse(self, bad: Flags, problem: str) -> None:
        for place in np.flatnonzero(bad).tolist():
            self._problems.setdefault(place, problem)

    def _batches(self, chosen: Flags) -> Iterator[Batches]:
        """The batches among the entries: those that are not compressed where they are, the others one behind the other."""
        counts = self._number(entry.MESSAGES).int32.astype(np.int64)
        is_packed = self._number(entry.COMPRESSION).int32 != NONE
        plain = np.flatnonzero(chosen & ~is_packed)
        if len(plain):
            heads = self._heads
            yield Batches(self._bytes, heads.payload_starts[plain], heads.payload_ends[plain], plain, counts[plain])
        inflated = self._inflated(chosen & is_packed)
        if inflated:
            packed = np.array(list(inflated), np.int64)
            sizes = np.array([len(one) for one in inflated.values()], np.int64)
            ends = np.cumsum(sizes)
            yield Batches(b"".join([*inflated.values(), bytes(PADDING)]), ends - sizes, ends, packed, counts[packed])

    def _inflated(self, chosen: Flags) -> dict[int, bytes]:
        """The payloads of the chosen entries by their places, decompressed. Those that cannot be are left out and refused."""
        found: dict[int, bytes] = {}
        starts, ends = self._heads.payload_starts, self._heads.payload_ends
        sizes, kinds = self._number(entry.UNCOMPRESSED_SIZE).values, self._number(entry.COMPRESSION).int32
        for place in np.flatnonzero(chosen).tolist():
            size = int(sizes[place])
            if self._inflated_bytes + size > MAX_TOGETHER_BYTES and size <= MAX_INFLATED_BYTES:
                self._problems[place] = f"the others hold {self._inflated_bytes} bytes: decode fewer together"
                continue
            try:
                found[place] = decompress(self._bytes[int(starts[place]) : int(ends[place])], int(kinds[place]), size)
            except DamagedPayloadError as problem:
                self._problems[place] = f"its payload is damaged: {problem}"
            else:
                self._inflated_bytes += size
        return found

    def _shared(self) -> Columns:
        """What an entry says for all its rows."""
        metadata = self._heads.metadata
        schemas, uuids = metadata.slices[entry.SCHEMA_VERSION], metadata.slices[entry.UUID]
        is_chunk = self._is_chunk
        found = {
            "_publish_time": timestamps(self._number(entry.PUBLISH_TIME).values, np.ones(len(self._ids), np.bool_)),
            "_producer": self._cut(metadata.slices[entry.PRODUCER]),
            "schema_version": self._cut(schemas),
            "txn_most": uint64s(self._number(entry.TXN_MOST)),
            "txn_least": uint64s(self._number(entry.TXN_LEAST)),
            "marker_type": int32s(self._number(entry.MARKER_TYPE).int32, self._number(entry.MARKER_TYPE).present),
            "encryption_key": self._encryption_keys(),
            "uuid": self._cut(Slices(uuids.starts, uuids.ends, uuids.present & is_chunk)),
            "chunk_id": int32s(self._number(entry.CHUNK_ID).int32, is_chunk),
            "chunks": int32s(self._number(entry.CHUNKS).int32, is_chunk),
            "total_size": int32s(self._number(entry.TOTAL_SIZE).int32, is_chunk),
            "compression": int32s(self._number(entry.COMPRESSION).int32),
            "uncompressed_size": int64s(self._number(entry.UNCOMPRESSED_SIZE).signed),
        }
        for name in ("_producer", "uuid", "encryption_key"):
            self._refuse_texts(not_text(found[name]))
        return found

    def _cut(self, slices: Slices) -> pa.BinaryArray:
        return cut_out(pa.py_buffer(self._bytes), slices.starts, slices.ends, slices.present)

    def _refuse_texts(self, places: Iterable[int]) -> None:
        for place in places:
            self._problems.setdefault(place, "it has a text that is not UTF-8")

    def _encryption_keys(self) -> pa.BinaryArray:
        """The name of the first key of each encrypted entry."""
        keys = self._heads.metadata.parts[entry.ENCRYPTION_KEYS]
        if not len(keys.rows):
            return pa.nulls(len(self._ids), pa.binary())
        names = parse(self._data, keys.starts, keys.ends, slices=(_KEY_NAME, _KEY_VALUE))
        name = names.slices[_KEY_NAME]
        whole = ~names.malformed & name.present & names.slices[_KEY_VALUE].present
        for place in np.unique(keys.rows[~whole]).tolist():
            self._problems.setdefault(place, "its encryption keys are damaged")
        rows, firsts = np.unique(keys.rows, return_index=True)
        starts, ends = np.zeros(len(self._ids), np.int64), np.zeros(len(self._ids), np.int64)
        present = np.zeros(len(self._ids), np.bool_)
        starts[rows], ends[rows], present[rows] = name.starts[firsts], name.ends[firsts], whole[firsts]
        return self._cut(Slices(starts, ends, present))

    def _alone(self, shared: Columns, batched: Flags) -> pa.RecordBatch | None:
        """The rows of entries that are no batches."""
        values = self._values(batched)
        metadata = self._heads.metadata
        keys = self._cut(metadata.slices[entry.KEY])
        self._refuse_texts([place for place in not_text(keys) if not batched[place]])
        properties, wrong = properties_of(self._bytes, self._data, metadata.parts[entry.PROPERTIES], len(self._ids))
        self._refuse_texts([place for place in wrong if not batched[place]])
        event = self._number(entry.EVENT_TIME)
        columns = {
            **shared,
            "entry_id": int64s(self._ids),
            "batch_index": int32s(np.full(len(self._ids), -1, np.int32)),
            "key": keys,
            "value": values,
            "_event_time": timestamps(event.values, event.values > 0),
            "_sequence_id": int64s(self._number(entry.SEQUENCE_ID).signed),
            "_properties": properties,
            "_ordering_key": self._cut(metadata.slices[entry.ORDERING_KEY]),
        }
        return kept_rows(columns, self._good() & ~batched)

    def _values(self, batched: Flags) -> pa.BinaryArray:
        """The values of entries that are no batches, null in the others."""
        has_value = (self._is_plain & ~self._number(entry.NULL_VALUE).is_true) | (self._is_chunk & ~self._is_locked)
        has_value &= ~batched & self._good() & ~self._number(entry.MARKER_TYPE).present
        values = self._cut(Slices(self._heads.payload_starts, self._heads.payload_ends, has_value))
        inflated = self._inflated(has_value & ~self._is_chunk & (self._number(entry.COMPRESSION).int32 != NONE))
        if inflated:
            mask = np.zeros(len(self._ids), np.bool_)
            mask[list(inflated)] = True
            values = pc.replace_with_mask(values, bools(mask), binaries(list(inflated.values())))
        return values

    def _of_batches(self, shared: Columns, messages: Messages) -> pa.RecordBatch | None:
        """The rows of messages in batches."""
        found, data = messages.metadata, np.frombuffer(messages.data, np.uint8)
        buffer = pa.py_buffer(messages.data)
        owners = messages.owners
        keys, orders = found.slices[single.KEY], found.slices[single.ORDERING_KEY]
        key_column = cut_out(buffer, keys.starts, keys.ends, keys.present)
        properties, wrong = properties_of(messages.data, data, found.parts[single.PROPERTIES], len(owners))
        self._refuse_texts(owners[[*not_text(key_column), *wrong]].tolist())
        null, event, number = (found.varints[one] for one in (single.NULL_VALUE, single.EVENT_TIME, single.SEQUENCE_ID))
        is_null = np.where(null.present, null.is_true, self._number(entry.NULL_VALUE).is_true[owners])
        times = np.where(event.present, event.values, self._number(entry.EVENT_TIME).values[owners])
        for place in np.unique(owners[times > _MAX_MS]).tolist():
            self._problems.setdefault(place, "it has a time that no clock shows")
        kept = self._good()[owners] & ~found.varints[single.COMPACTED_OUT].is_true
        place_of = int64s(owners)
        columns = {
            **{name: spread(column, place_of) for name, column in shared.items()},
            "entry_id": int64s(self._ids[owners]),
            "batch_index": int32s(messages.indexes.astype(np.int32)),
            "key": key_column,
            "value": cut_out(buffer, messages.value_starts, messages.value_ends, ~is_null),
            "_event_time": timestamps(times, times > 0),
            "_sequence_id": int64s(
                np.where(number.present, number.signed, self._number(entry.SEQUENCE_ID).signed[owners]).astype(np.int64)
            ),
            "_properties": properties,
            "_ordering_key": cut_out(buffer, orders.starts, orders.ends, orders.present),
        }
        return kept_rows(columns, kept)

    def _in_order(self, parts: Sequence[pa.RecordBatch | None]) -> pa.RecordBatch:
        found = [one for one in parts if one is not None]
        if not found:
            return NO_ROWS
        rows = found[0] if len(found) == 1 else merged(found)
        good = self._good()[np.searchsorted(self._ids, ids_of(rows))]
        return rows if good.all() else rows.filter(bools(good))

    def _unreadable(self) -> tuple[Unreadable, ...]:
        return tuple(Unreadable(int(self._ids[place]), self._problems[place]) for place in sorted(self._problems))


def _in_a_row(payloads: pa.BinaryArray | pa.ChunkedArray) -> tuple[bytes, Ints]:
    """The bytes of all payloads with PADDING behind them, and the place where the first begins and each ends."""
    chunks = [chunk for chunk in (payloads.chunks if isinstance(payloads, pa.ChunkedArray) else [payloads]) if len(chunk)]
    sizes = [payload_sizes(chunk) for chunk in chunks]
    # Arrays of empty payloads may have no buffer.
    parts = [payloads_in_a_row(chunk) for chunk, one in zip(chunks, sizes, strict=True) if one.any()]
    return b"".join([*parts, bytes(PADDING)]), np.cumsum(np.concatenate([np.zeros(1, np.int64), *sizes]))
