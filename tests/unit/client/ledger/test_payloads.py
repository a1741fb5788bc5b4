"""What applications may append, and that what they handed over is what is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bk_spark.client.ledger import payloads
from bk_spark.client.ledger.payloads import checked_payload, checked_payloads, own_payloads, taken_payload, taken_payloads
from bk_spark.entries import batch
from bk_spark.errors import ConfigError, EntryTooLargeError

SIZE = 5


def test_a_batch_takes_all_kinds_of_bytes_as_they_are() -> None:
    payloads = [b"a", bytearray(b"bc"), memoryview(b"d" * 8).cast("q"), b"", pa.py_buffer(b"ef")]
    assert checked_payloads(payloads).array.to_pylist() == [b"a", b"bc", b"d" * 8, b"", b"ef"]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_a_batch_takes_all_arrays_of_bytes(kind: pa.DataType) -> None:
    payloads = [b"a", b"", b"c" * 50]
    given = pa.array([b"before", *payloads], kind).slice(1)
    assert checked_payloads(given).array.to_pylist() == payloads
    assert checked_payloads(pa.chunked_array([given[:1], given[1:]])).array.to_pylist() == payloads
    assert checked_payloads(pa.chunked_array([given])).owned().array.to_pylist() == payloads


def test_a_list_larger_than_an_array_of_arrow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "MAX_BINARY_BYTES", 3)
    assert len(checked_payloads([b"abc"])) == 1
    with pytest.raises(ConfigError, match="the size of the payloads is 4 bytes: at most 3 bytes go into one call"):
        checked_payloads([b"ab", b"cd"])


def test_an_entry_may_have_the_largest_size_and_no_byte_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "MAX_ENTRY_BYTES", SIZE)
    assert checked_payload(bytes(SIZE)) == bytes(SIZE)
    assert checked_payloads([b"", bytes(SIZE)]).sizes.tolist() == [0, SIZE]
    for refused in (lambda: checked_payload(bytes(SIZE + 1)), lambda: checked_payloads([bytes(SIZE + 1), b""])):
        with pytest.raises(EntryTooLargeError):
            refused()


@pytest.mark.parametrize("offsets", [[0, 5, 4, 10], [-1, 5, 5, 10], [0, 5, 10, 11]])
def test_an_array_whose_offsets_do_not_fit_its_bytes_is_refused(offsets: list[int]) -> None:
    memory = np.array([0, 5, 5, 10], np.int32)
    broken = pa.Array.from_buffers(pa.binary(), 3, [None, pa.py_buffer(memory), pa.py_buffer(bytes(10))])
    memory[:] = offsets
    with pytest.raises(ConfigError, match="its offsets do not fit its 10 bytes"):
        checked_payloads(broken)


# --- memory that the caller changes after the call


def _numpy(read_only: bool) -> tuple[np.ndarray[Any, Any], Any]:
    memory = np.full(SIZE, ord("A"), np.uint8)
    view = memory.view()
    view.flags.writeable = not read_only
    return memory, view


def _one(kind: str, read_only: bool) -> tuple[np.ndarray[Any, Any], Any]:
    memory, view = _numpy(read_only)
    return memory, {"memoryview": memoryview, "buffer": pa.py_buffer}[kind](view)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("kind", ["memoryview", "buffer"])
@pytest.mark.parametrize("take", [checked_payload, taken_payload])
def test_an_entry_is_what_was_handed_over_though_its_memory_changes(
    kind: str, read_only: bool, take: Callable[[Any], bytes]
) -> None:
    memory, payload = _one(kind, read_only)
    taken = take(payload)
    memory[:] = ord("B")
    assert taken == b"A" * SIZE


def _array(memory: Any, kind: pa.DataType, *, foreign: bool) -> pa.Array:
    offsets = np.arange(0, SIZE + 1, dtype=np.int64 if kind == pa.large_binary() else np.int32)
    array = pa.Array.from_buffers(kind, SIZE, [None, pa.py_buffer(offsets), pa.py_buffer(memory)])
    return pa.Array._import_from_c_capsule(*array.__arrow_c_array__()) if foreign else array


@pytest.mark.parametrize("foreign", [False, True], ids=["", "another library's"])
@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_a_batch_is_what_was_handed_over_though_its_memory_changes(kind: pa.DataType, read_only: bool, foreign: bool) -> None:
    """No buffer says reliably whether somebody can write to it."""
    memory, view = _numpy(read_only)
    array = _array(view, kind, foreign=foreign)
    parts = checked_payloads(array).part(1, 3), checked_payloads(array).owned().array, taken_payloads(array).array
    memory[:] = ord("B")
    assert [part.to_pylist() for part in parts] == [[b"A"] * 2, [b"A"] * SIZE, [b"A"] * SIZE]


def test_the_offsets_of_a_batch_are_those_that_were_checked_though_their_memory_changes() -> None:
    offsets = np.arange(0, SIZE + 1, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"A" * SIZE)]
    checked = checked_payloads(pa.Array.from_buffers(pa.binary(), SIZE, buffers))
    offsets[:] = 10**9
    assert checked.part(0, SIZE).to_pylist() == [b"A"] * SIZE


def test_a_list_is_what_was_handed_over_though_its_members_change() -> None:
    members: list[Any] = [bytearray(b"AA"), memoryview(bytearray(b"AA"))]
    checked, taken = checked_payloads(members), taken_payloads(members)
    for member in members:
        member[:] = b"BB"
    members.clear()
    assert (checked.array.to_pylist(), taken) == ([b"AA"] * 2, [b"AA"] * 2)


def test_what_cannot_change_is_not_copied() -> None:
    payload = b"A" * 1000
    assert checked_payload(payload) is payload
    own = checked_payloads([payload])
    assert own.part(0, 1).buffers()[2].address == own.array.buffers()[2].address == pa.py_buffer(payload).address
    made = pa.array([payload])
    assert own_payloads(made).owned().array.buffers()[2].address == made.buffers()[2].address


@pytest.mark.parametrize("wrong", [5, None, "text", [b"", "text"], pa.array([b"", None]), pa.array([1]), b"one"])
def test_what_is_wrong_is_left_to_the_check(wrong: Any) -> None:
    """Calls of coroutines refuse it when they are awaited."""
    taken_payload(wrong)
    with pytest.raises(ConfigError):
        checked_payloads(taken_payloads(wrong))


VIEWS = np.array([(20, b"abcd", 0, 500)], np.dtype([("size", "<i4"), ("prefix", "S4"), ("buffer", "<i4"), ("offset", "<i4")]))
FALLING = np.array([0, 8, 2, 9], np.int64)


@pytest.mark.parametrize(
    "array",
    [
        pa.Array.from_buffers(pa.binary_view(), 1, [None, pa.py_buffer(VIEWS), pa.py_buffer(b"abcdefgh")]),
        pa.Array.from_buffers(pa.large_binary(), 3, [None, pa.py_buffer(FALLING), pa.py_buffer(b"abcdefghi")]),
        pa.chunked_array(
            [pa.Array.from_buffers(pa.binary(), 3, [None, pa.py_buffer(FALLING.astype(np.int32)), pa.py_buffer(b"abcdefghi")])]
            * 2
        ),
    ],
    ids=["view", "large", "chunks"],
)
def test_an_array_of_any_kind_whose_buffers_do_not_fit_together_is_refused(array: pa.Array) -> None:
    with pytest.raises(ConfigError, match=r"payloads is an array of \d entries: its buffers do not fit together"):
        checked_payloads(array)
