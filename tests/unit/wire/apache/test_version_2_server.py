"""Version 2 as a bookie hears it, against requests that were put together field by field."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.errors import CorruptionError
from bk_spark.wire.apache import version_2_server as v2
from bk_spark.wire.apache.version_2 import Flag, Operation
from bk_spark.wire.messages import Status

KEY = bytes(range(20))


def frame(operation: int, flags: int, rest: bytes, version: int = 2) -> bytes:
    return struct.pack(">IBBH", 4 + len(rest), version, operation, flags) + rest


def add(ledger_id: int, entry_id: int, size: int = 10, flags: int = 0, key: bytes = KEY) -> bytes:
    entry = struct.pack(">3q", ledger_id, entry_id, entry_id - 1) + bytes([entry_id % 251]) * size
    return frame(Operation.ADD, flags, key + entry)


def taken(data: bytes) -> list[v2.Request]:
    view, at, found = memoryview(data), 0, []
    while (end := v2.frame_end(view, at, 1 << 20)) is not None:
        request, at = v2.take(view, at, end)
        found.append(request)
    assert at == len(data)
    return found


ADDS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 40), st.integers(0, 3), st.sampled_from([0, 2, 6]), st.booleans()), max_size=40
)


@given(adds=ADDS)
def test_runs_hold_every_add_in_its_order_and_never_mix_ledgers_keys_or_kinds(adds) -> None:
    sent = [(ledger, entry, size, flags, KEY if own else bytes(20)) for ledger, entry, size, flags, own in adds]
    runs = taken(b"".join(add(*one) for one in sent))
    found = []
    for run in runs:
        assert isinstance(run, v2.SingleAdds)
        ids = run.whole.entry_ids.tolist()
        assert ids == sorted(set(ids))
        for entry_id, entry in zip(ids, run.whole.entries.to_pylist(), strict=True):
            found.append((run.ledger_id, entry_id, entry, run.flags, run.master_key))
    assert found == [(ledger, entry, add(ledger, entry, size)[28:], flags, key) for ledger, entry, size, flags, key in sent]


def test_adds_of_one_size_in_a_row_are_one_run_and_their_acks_one_write() -> None:
    [run] = taken(b"".join(add(7, entry, 100, Flag.RECOVERY_ADD) for entry in range(500)))
    assert isinstance(run, v2.SingleAdds)
    assert (len(run.whole), run.is_recovery, run.is_deferred) == (500, True, False)
    acks = run.acks(slice(10, 12), Status.FENCED)
    assert acks == b"".join(struct.pack(">IBBHiqq", 24, 2, Operation.ADD, 0, 104, 7, entry) for entry in (10, 11))


def test_a_run_has_a_limit() -> None:
    runs = taken(b"".join(add(7, entry) for entry in range(v2.MOST_RUN_ENTRIES + 1)))
    assert [len(run.whole) for run in runs if isinstance(run, v2.SingleAdds)] == [v2.MOST_RUN_ENTRIES, 1]


def test_reads_and_batch_reads_are_told_apart_and_fence_only_with_the_flag() -> None:
    read = frame(Operation.READ, 0, struct.pack(">qq", 5, -1))
    fence = frame(Operation.READ, Flag.FENCE | Flag.HIGH_PRIORITY, struct.pack(">qq", 5, 8) + KEY)
    batch = frame(Operation.BATCH_READ, 0, struct.pack(">qqqiq", 5, 8, 99, 10, 1_000))
    assert taken(read + fence + batch) == [
        v2.SingleRead(5, -1, None, False),
        v2.SingleRead(5, 8, KEY, True),
        v2.EntriesRead(5, 8, 99, 10, 1_000, None),
    ]


@pytest.mark.parametrize("key", [b"", KEY[:19]])
def test_a_fence_without_a_whole_key_is_not_authorized(key: bytes) -> None:
    read = frame(Operation.READ, Flag.FENCE, struct.pack(">qq", 5, 8) + key)
    batch = frame(Operation.BATCH_READ, Flag.FENCE, struct.pack(">qqqiq", 5, 8, 99, 0, 1_000) + key)
    assert taken(read + batch) == [
        v2.Refused(struct.pack(">IBBHiqq", 24, 2, Operation.READ, 0, 102, 5, 8)),
        v2.Refused(struct.pack(">IBBHiqqq", 32, 2, Operation.BATCH_READ, 0, 102, 5, 8, 99)),
    ]


def test_answers_have_the_layout_of_apaches() -> None:
    read = v2.SingleRead(5, -1, None)
    assert v2.pack_read(read, Status.OK, b"entry") == struct.pack(">IBBHiqq", 29, 2, 2, 0, 0, 5, -1) + b"entry"
    assert v2.pack_read(read, Status.UNKNOWN) == struct.pack(">IBBHiqq", 24, 2, 2, 0, 107, 5, -1)
    batch = v2.EntriesRead(5, 8, 99, 10, 1_000, None)
    [run] = taken(add(5, 8, 2) + add(5, 9, 2))
    assert isinstance(run, v2.SingleAdds)
    sized = v2.sized([run.whole.entries])
    assert sized == b"".join(struct.pack(">i", 26) + add(5, entry, 2)[28:] for entry in (8, 9))
    assert v2.pack_entries(batch, Status.OK, sized) == struct.pack(">IBBHiqqq", 92, 2, 7, 0, 0, 5, 8, 99) + sized


@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=20))
def test_entries_of_any_size_stand_behind_their_sizes(sizes: list[int]) -> None:
    [run, *others] = taken(b"".join(add(5, entry, size) for entry, size in enumerate(sizes)))
    assert isinstance(run, v2.SingleAdds)
    assert not others
    entries = [add(5, entry, size)[28:] for entry, size in enumerate(sizes)]
    assert v2.sized([run.whole.entries]) == b"".join(struct.pack(">i", len(entry)) + entry for entry in entries)


@pytest.mark.parametrize(
    "data",
    [
        frame(Operation.ADD, 0, KEY + bytes(15)),
        frame(Operation.READ, 0, bytes(15)),
        frame(Operation.BATCH_READ, 0, bytes(35)),
        frame(4, 0, bytes(15)),
        frame(Operation.READ, 0, bytes(15), version=3),
        struct.pack(">IBB", 2, 2, 1),
    ],
)
def test_what_has_no_ids_ends_the_connection(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        taken(data)


@pytest.mark.parametrize(
    ("data", "code", "ids"),
    [
        (frame(Operation.ADD, 0, KEY + struct.pack(">2q", 1, 2) + bytes(7)), 100, (1, 2)),
        (frame(Operation.ADD, 0, KEY + struct.pack(">3q", -1, 0, -1)), 100, (-1, 0)),
        (frame(Operation.ADD, 0, KEY + struct.pack(">3q", 1, -1, -1)), 100, (1, -1)),
        (frame(Operation.ADD, 0, KEY + struct.pack(">3q", 1, (1 << 62) + 1, -1)), 100, (1, (1 << 62) + 1)),
        (frame(4, 0, struct.pack(">2q", 3, 4)), 100, (3, 4)),
        (frame(Operation.ADD, 0, KEY + struct.pack(">3q", 5, 6, -1), version=3), 103, (5, 6)),
    ],
)
def test_what_is_no_request_is_refused_under_its_ids(data: bytes, code: int, ids: tuple[int, int]) -> None:
    assert taken(data) == [v2.Refused(struct.pack(">IBBHiqq", 24, 2, data[5], 0, code, *ids))]


def test_a_frame_above_the_limit_is_refused_before_it_has_come() -> None:
    with pytest.raises(CorruptionError, match="a frame of 2147483647 bytes"):
        v2.frame_end(memoryview(struct.pack(">I", 2**31 - 1)), 0, 1 << 20)
