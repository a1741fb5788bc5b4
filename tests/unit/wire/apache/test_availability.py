"""The list of entries, read back as Apache's clients read it."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from bk_spark.quorum import DENSE, IdPattern
from bk_spark.wire.apache.availability import pack_availability

INTERVALS = st.lists(
    st.tuples(st.integers(0, 200), st.integers(0, 60), st.sampled_from([DENSE, IdPattern(3, 2, 0), IdPattern(5, 1, 2)])),
    max_size=12,
)


def read_back(packed: bytes) -> list[int]:
    version, groups = struct.unpack_from(">ii", packed)
    assert version == 0
    assert packed[8:64] == bytes(56)
    assert len(packed) == 64 + 24 * groups
    ids: list[int] = []
    for first, last, size, period in struct.iter_unpack(">qqii", packed[64:]):
        starts = range(first, last + 1, period) if period else [first]
        assert period or first == last
        for start in starts:
            ids += range(start, start + size)
    return ids


@given(intervals=INTERVALS)
def test_the_list_names_each_entry_once_and_no_other(intervals) -> None:
    held = [pattern.ids(first, first + span) for first, span, pattern in intervals]
    kept = [(int(ids[0]), int(ids[-1]), one[2]) for ids, one in zip(held, intervals, strict=True) if len(ids)]
    assert read_back(pack_availability(kept)) == sorted({int(one) for ids in held for one in ids})


def test_a_stripe_is_one_group() -> None:
    pattern = IdPattern(3, 2, 0)
    ids = pattern.ids(0, 3_000)
    packed = pack_availability([(0, int(ids[-1]), pattern)])
    assert struct.unpack_from(">ii", packed)[1] <= 3
    assert read_back(packed) == ids.tolist()
