"""Which rows are the last ones of their keys: in memory, in parts of parts, and with keys of all types."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from bk_spark.errors import StorageError
from bk_spark.rows.newest import newest_rows, spilled
from bk_spark.rows.newest.key_hash import hashes_of
from bk_spark.rows.newest.newest_rows import NewestRows
from tests.soak.latest.keys import VALUES, same_key


def places(newest: NewestRows) -> list[int]:
    return sorted(place for some in newest.places() for place in some.tolist())


def last_places(keys: Sequence[tuple[Any, ...]], removes: Sequence[bool | None]) -> list[int]:
    found = {same_key(key): place for place, key in enumerate(keys)}
    return sorted(place for place in found.values() if removes[place] is not True)


def in_batches(rows: int, size: int) -> Iterator[slice]:
    return (slice(first, first + size) for first in range(0, rows, size))


def drawn(chance: random.Random, kinds: Sequence[str], rows: int) -> list[tuple[Any, ...]]:
    return [tuple(chance.choice((None, *VALUES[kind][1])) for kind in kinds) for _ in range(rows)]


@pytest.fixture
def spills(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often keys were cut into parts."""
    found: list[int] = []

    class Counted(spilled.SpilledBatches):
        def __init__(self, schema: pa.Schema) -> None:
            found.append(1)
            super().__init__(schema)

    monkeypatch.setattr(newest_rows, "SpilledBatches", Counted)
    return found


@pytest.mark.parametrize("most_bytes", [100, 2000, newest_rows.KNOWN_BYTES])
@pytest.mark.parametrize("seed", range(8))
def test_the_last_row_of_each_key_is_found_whatever_the_types_of_keys(seed: int, most_bytes: int) -> None:
    chance = random.Random(seed)
    kinds = chance.sample(list(VALUES), chance.randint(1, 3))
    keys = drawn(chance, kinds, 300)
    removes = [chance.choice((None, False, True)) for _ in keys]
    newest = NewestRows(most_bytes)
    for part in in_batches(len(keys), 37):
        columns = [pa.array([key[place] for key in keys[part]], VALUES[kind][0]) for place, kind in enumerate(kinds)]
        newest.add(columns, pa.array(removes[part], pa.bool_()))
    assert places(newest) == last_places(keys, removes)


def test_every_type_of_key_goes_to_parts(spills: list[int]) -> None:
    for kind, (of, values) in VALUES.items():
        newest = NewestRows(1)
        newest.add([pa.array([*values, None, *values], of)], None)
        assert places(newest) == last_places([(one,) for one in (*values, None, *values)], [None] * (2 * len(values) + 1)), kind
    assert len(spills) > 2 * len(VALUES)


def test_keys_that_do_not_fit_are_cut_into_parts_and_these_again(spills: list[int]) -> None:
    newest = NewestRows(4000)
    keys = [number % 7000 for number in range(20_000)]
    for part in in_batches(len(keys), 1000):
        newest.add([pa.array(keys[part])], None)
    assert places(newest) == list(range(13_000, 20_000))
    assert len(spills) > newest_rows.PARTS


def test_keys_that_fit_go_to_no_file(spills: list[int]) -> None:
    newest = NewestRows()
    for _ in range(30):
        newest.add([pa.array(range(1000))], None)
    assert places(newest) == list(range(29_000, 30_000))
    assert spills == []


def test_no_row_at_all_is_no_newest_row() -> None:
    newest = NewestRows()
    newest.add([pa.array([], pa.string())], pa.array([], pa.bool_()))
    assert places(newest) == []
    assert places(NewestRows()) == []


def test_keys_that_wait_do_not_keep_the_entry_that_they_are_a_slice_of() -> None:
    entry = pa.record_batch({"key": pa.array(range(10)), "wide": pa.array(["x" * 10_000] * 10)})
    payload = entry.serialize()
    before = pa.total_allocated_bytes()
    newest = NewestRows()
    for _ in range(50):
        found = pa.ipc.read_record_batch(pa.py_buffer(bytes(payload)), entry.schema)
        newest.add([found.column("key")], None)
    assert pa.total_allocated_bytes() - before < len(payload) * 5


def test_a_full_disk_is_one_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self, **_: Any) -> None:
            self.closed = False

        def write(self, _: bytes) -> int:
            raise OSError(28, "No space left on device")

        def flush(self) -> None: ...
        def close(self) -> None: ...

    monkeypatch.setattr(spilled.tempfile, "TemporaryFile", Full)
    newest = NewestRows(1)
    says = r"for the keys of a read with view=latest.* failed: .*No space left.*make room there, name another directory in"
    with pytest.raises(StorageError, match=says):
        newest.add([pa.array(range(100_000))], None)


def test_files_of_keys_have_no_name_and_end_with_whoever_reads_them(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilled.tempfile, "tempdir", str(tmp_path))
    newest = NewestRows(1)
    newest.add([pa.array(range(1000))], None)
    left = newest.places()
    next(left)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("kind", "of", "values"), [(kind, *one) for kind, one in VALUES.items()])
def test_equal_keys_have_one_hash_and_others_others(kind: str, of: pa.DataType, values: tuple[Any, ...]) -> None:
    several = pa.array([None, *values, None, *values], of)
    column = newest_rows.comparable(several)
    hashes = hashes_of([column], len(column)).tolist()
    half = len(values) + 1
    assert hashes[:half] == hashes[half:]
    assert len({*hashes}) == len({same_key((one,)) for one in (None, *values)})
    assert hashes_of([column.slice(3)], len(column) - 3).tolist() == hashes[3:]


def test_a_hash_tells_the_columns_of_a_key_apart() -> None:
    one, other = pa.array([1, 2]), pa.array([2, 1])
    first, second = hashes_of([one, other], 2).tolist()
    assert first != second


def test_parts_of_keys_are_about_equal() -> None:
    names = pa.array([f"customer-{number}".encode() for number in range(16_000)])
    for column in (pa.array(range(16_000)), names):
        parts = hashes_of([column], 16_000) >> 60
        sizes = [(parts == part).sum() for part in range(16)]
        assert 800 < min(sizes) <= max(sizes) < 1200
