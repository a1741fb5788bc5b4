"""One copy of a ledger, read from files as from an object store: any entries, few bytes, and nothing that was not written."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest

from bk_spark.errors import CorruptionError
from bk_spark.files.file_store import FileGoneError, FileStore
from bk_spark.pulsar.offloaded import DamagedCopyError
from bk_spark.pulsar.stored import OffloadedCopy, StoredLedger
from bk_spark.topic import copies
from bk_spark.topic.copies import CopiedLedger, address_of, properties_of, refusal
from tests.unit.pulsar.copies import HEAD_BYTES, WrittenCopy, written_copy
from tests.unit.pulsar.entries import single
from tests.unit.pulsar.test_offloaded import is_told_or_the_same

UID = UUID("7680f1e5-6e5f-4a92-b8fa-81cfe103fd24")
COPY = OffloadedCopy("aws-s3", UID, "offloaded", "eu-west-1", "https://store:9000")


@dataclass
class CountedStore(FileStore):
    """It remembers how many bytes it gave of each file."""

    given: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__({})

    def read_at(self, address: str, file: pa.NativeFile, at: int, count: int) -> bytes:
        found = super().read_at(address, file, at, count)
        self.given.append(len(found))
        return found


@dataclass(frozen=True)
class Files:
    """A copy in a folder."""

    folder: Path
    entries: list[bytes]

    @property
    def address(self) -> str:
        return f"file://{self.folder}/data"

    def put(self, copy: WrittenCopy) -> None:
        (self.folder / "data").write_bytes(copy.data)
        (self.folder / "data-index").write_bytes(copy.index)

    def opened(self, store: FileStore | None = None) -> CopiedLedger:
        listed = StoredLedger(5, len(self.entries), sum(map(len, self.entries)), 0)
        return CopiedLedger(store or FileStore({}), self.address, listed)


def files_of(folder: Path, entries: list[bytes], block_bytes: int = 5 << 20) -> tuple[Files, WrittenCopy]:
    files, copy = Files(folder, entries), written_copy(entries, block_bytes)
    files.put(copy)
    return files, copy


def entries_in(ledger: CopiedLedger, first: int, last: int) -> list[tuple[int, bytes]]:
    found = pa.Table.from_batches(list(ledger.read(first, last)), copies.SCHEMA)
    return list(zip(found.column("entry_id").to_pylist(), found.column("payload").to_pylist(), strict=True))


def test_any_entries_of_a_copy_are_read_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "FIRST_READ_BYTES", 100)
    monkeypatch.setattr(copies, "READ_BYTES", 400)
    monkeypatch.setattr(copies, "PLACE_BYTES", 200)
    drawn = random.Random(4)
    entries = [single(drawn.randbytes(drawn.choice([0, 5, 40, 900]))) for _ in range(60)]
    files, _ = files_of(tmp_path, entries, 2500)
    ledger = files.opened()
    for _ in range(300):
        first = drawn.randrange(60)
        last = drawn.choice([first, drawn.randrange(first, 60)])
        assert entries_in(ledger, first, last) == list(enumerate(entries))[first : last + 1]


def test_a_flipped_bit_or_a_cut_is_told_and_never_gives_other_entries(tmp_path: Path) -> None:
    drawn = random.Random(5)
    entries = [single(drawn.randbytes(drawn.randrange(50))) for _ in range(12)]
    files, copy = files_of(tmp_path, entries, 500)
    told = 0
    for _ in range(400):
        spoilt = {"data": bytearray(copy.data), "index": bytearray(copy.index)}
        one = spoilt[drawn.choice(["data", "index"])]
        place = drawn.randrange(len(one))
        if drawn.random() < 0.2:
            del one[place:]
        else:
            one[place] ^= 1 << drawn.randrange(8)
        files.put(replace(copy, data=bytes(spoilt["data"]), index=bytes(spoilt["index"])))
        try:
            assert is_told_or_the_same([entry for _, entry in entries_in(files.opened(), 0, 11)], entries)
        except DamagedCopyError:
            told += 1
    assert told > 200


def test_a_search_by_halving_reads_a_block_about_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "FIRST_READ_BYTES", 1000)
    monkeypatch.setattr(copies, "READ_BYTES", 4000)
    monkeypatch.setattr(copies, "PLACE_BYTES", 2000)
    entries = [single(b"x" * 100) for _ in range(2000)]
    files, copy = files_of(tmp_path, entries)
    store = CountedStore()
    ledger = files.opened(store)
    low, high = 0, 2000
    while low < high:
        middle = (low + high) // 2
        assert [entry_id for entry_id, _ in entries_in(ledger, middle, middle)] == [middle]
        low, high = (middle + 1, high) if middle < 1733 else (low, middle)
    assert sum(store.given) < 1.2 * len(copy.data)
    assert max(store.given) <= 4000


def test_one_entry_of_a_later_block_costs_that_block_alone(tmp_path: Path) -> None:
    entries = [single(b"x" * 1000) for _ in range(100)]
    files, copy = files_of(tmp_path, entries, 20_000)
    store = CountedStore()
    ledger = files.opened(store)
    assert entries_in(ledger, 99, 99) == [(99, entries[99])]
    assert sum(store.given) < len(copy.index) + HEAD_BYTES + 20_000


def test_an_entry_larger_than_a_read_is_given_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "FIRST_READ_BYTES", 10)
    monkeypatch.setattr(copies, "READ_BYTES", 10)
    entries = [single(b"a"), single(b"b" * 100_000), single(b"c")]
    files, _ = files_of(tmp_path, entries)
    assert entries_in(files.opened(), 0, 2) == list(enumerate(entries))


def test_a_copy_of_another_ledger_is_refused(tmp_path: Path) -> None:
    files, _ = files_of(tmp_path, [single(b"a")] * 3)
    with pytest.raises(DamagedCopyError, match=r"its index has 3 entries of .* bytes, and Pulsar lists 4 of"):
        replace(files, entries=[single(b"a")] * 4).opened()


def test_objects_that_are_gone_are_told_from_damaged_ones(tmp_path: Path) -> None:
    files, copy = files_of(tmp_path, [single(b"a")] * 3)
    (tmp_path / "data").write_bytes(copy.data[:-1])
    with pytest.raises(DamagedCopyError, match=f"it has {len(copy.data) - 1} bytes, and its index says {len(copy.data)}"):
        files.opened()
    for name in ("data", "data-index"):
        (tmp_path / name).unlink()
        with pytest.raises(FileGoneError, match=name):
            files.opened()


def test_an_index_too_large_to_be_one_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, copy = files_of(tmp_path, [single(b"a")])
    monkeypatch.setattr(copies, "MAX_INDEX_BYTES", len(copy.index) - 1)
    with pytest.raises(DamagedCopyError, match="the maximum is"):
        files.opened()


def test_a_block_without_its_head_is_not_read(tmp_path: Path) -> None:
    entries = [single(b"a" * 1000) for _ in range(9)]
    files, copy = files_of(tmp_path, entries, 5000)
    begin = copy.blocks[1][2]
    files.put(replace(copy, data=copy.data[:begin] + b"\0" + copy.data[begin + 1 :]))
    ledger = files.opened()
    assert entries_in(ledger, 0, copy.blocks[1][0] - 1) == list(enumerate(entries))[: copy.blocks[1][0]]
    with pytest.raises(DamagedCopyError, match=f"the block at byte {begin} begins with magic"):
        entries_in(ledger, 0, 8)


def test_a_file_that_shrinks_under_a_reader_is_damage(tmp_path: Path) -> None:
    files, copy = files_of(tmp_path, [single(b"a" * 1000)] * 50, 5000)
    ledger = files.opened()
    (tmp_path / "data").write_bytes(copy.data[:8000])
    with pytest.raises((DamagedCopyError, CorruptionError), match="it ends at byte 8000"):
        entries_in(ledger, 0, 49)


@pytest.mark.parametrize(
    ("copy", "problem"),
    [
        (COPY, None),
        (replace(COPY, driver="S3"), None),
        (replace(COPY, driver="google-cloud-storage"), None),
        (
            replace(COPY, driver="filesystem"),
            "offloaded it to 'filesystem' .* only copies of aws-s3, S3 and google-",
        ),
        (replace(COPY, driver="azureblob"), "offloaded it to 'azureblob' "),
        (replace(COPY, uid=None), "streaming offload, whose layout is not understood here: read it through a broker"),
        (replace(COPY, bucket=""), "did not note the bucket"),
    ],
)
def test_copies_that_cannot_be_read_are_refused_by_name(copy: OffloadedCopy, problem: str | None) -> None:
    found = refusal(copy)
    if problem is None:
        assert found is None
    else:
        with pytest.raises(ValueError, match=problem):
            raise ValueError(found)


def test_a_copy_is_where_pulsar_noted_it_or_at_the_endpoint_that_a_reader_gives() -> None:
    assert address_of(COPY, 7) == f"s3://offloaded/{UID}-ledger-7"
    assert address_of(replace(COPY, driver="google-cloud-storage"), 7) == f"gs://offloaded/{UID}-ledger-7"
    assert properties_of(COPY, None) == {"s3.endpoint": "https://store:9000", "s3.region": "eu-west-1"}
    assert properties_of(COPY, "http://other") == {"s3.endpoint": "http://other", "s3.region": "eu-west-1"}
    assert properties_of(replace(COPY, region="", endpoint=""), None) == {}
