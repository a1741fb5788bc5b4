"""The files of a tier: written whole, read back, and found wrong where somebody changed them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bk_spark.config import MIB
from bk_spark.errors import CorruptionError
from bk_spark.files.file_store import FileStore
from bk_spark.lake import data_files as data_files_module
from bk_spark.lake import file_tasks
from bk_spark.lake.data_files import DataFiles, InTurn, apart, groups
from bk_spark.lake.file_tasks import FileTasks
from bk_spark.lake.ports import Rewrite
from bk_spark.log.stored.tier_mark import StepName
from bk_spark.log.stored.tier_places import TieredPlace
from bk_spark.log.stored.tier_records import DataFile, TieredLedger, TierStep
from bk_spark.log.stored.tier_settings import PartitionField
from bk_spark.log.stored.values import CommittedLedger
from bk_spark.log.tier import file_rows, kept_group, row_order
from bk_spark.log.tier.asked_rows import AskedRows
from bk_spark.log.tier.file_rows import TierFile
from bk_spark.log.tier.tiered_handle import TieredHandle
from bk_spark.progress import Progress, no_progress

COLUMNS = pa.schema([("v", pa.string()), *((name, pa.int64()) for name in ("_ledger_id", "_entry_id", "_row"))])
LEDGERS = tuple(CommittedLedger(one, 3, 100, 8) for one in (5, 3, 9))


class Source:
    """Ledgers of four entries with two rows each."""

    def columns(self, schema_id: int | None) -> pa.Schema:
        return COLUMNS

    def rows(self, ledger: CommittedLedger, schema_id: int | None) -> Iterator[pa.RecordBatch]:
        for entry in range(ledger.last_entry_id + 1):
            places = [[ledger.ledger_id] * 2, [entry] * 2, [0, 1]]
            yield pa.record_batch([[f"{ledger.ledger_id} {entry}", None], *places], schema=COLUMNS)


@pytest.fixture
def files(tmp_path: Path) -> DataFiles:
    return data_files(tmp_path)


def data_files(tmp_path: Path, progress: Progress = no_progress, partition: tuple[PartitionField, ...] = ()) -> DataFiles:
    source: Any = Source()
    store = FileStore({})
    runner = InTurn(FileTasks(store, source), progress)
    return DataFiles(store, f"file://{tmp_path}/lake", source, lambda columns: columns, runner, partition)


def step(*add: CommittedLedger) -> TierStep:
    return TierStep(StepName(1, "s", ""), add, 0, 0, 0)


def table_of(file: DataFile) -> pa.Table:
    return pq.read_table(file.path.removeprefix("file://"))


def test_what_is_read_back_is_what_was_written_with_all_ledgers_in_order(files: DataFiles) -> None:
    content, [file] = files.write("1-x", step(*LEDGERS), ())
    assert file.ledgers == (5, 3, 9)
    assert table_of(file)["_ledger_id"].to_pylist() == [5] * 8 + [3] * 8 + [9] * 8
    assert files.read_back([file]) == content
    assert {one.rows for one in content.values()} == {8}
    assert len({one.digest for one in content.values()}) == 3
    assert files.missing([file]) == []
    assert files.folders(1) == ["1-x"]
    files.delete_folder("1-x")
    files.delete_folder("1-x")
    assert (files.missing([file]), files.folders(1)) == ([file.path], [])


def test_ledgers_fill_files_up_to_a_size_and_a_large_one_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_tasks, "FILE_BYTES", 250)
    sizes = [100, 100, 100, 400, 50, 200]
    found = groups([CommittedLedger(n, 3, size, 8) for n, size in enumerate(sizes)])
    assert [[one.ledger_id for one in group] for group in found] == [[0, 1], [2], [3], [4, 5]]


def test_a_large_ledger_is_in_several_files_and_no_entry_is_in_two(files: DataFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_tasks, "FILE_BYTES", 50)
    monkeypatch.setattr(file_tasks, "GROUP_ROWS", 1)
    content, parts = files.write("1-x", step(LEDGERS[0]), ())
    assert [table_of(one)["_entry_id"].to_pylist() for one in parts] == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert files.read_back(reversed(parts)) == files.read_back(parts) == content
    place = TieredPlace(TieredLedger(LEDGERS[0], content[5].digest), tuple(reversed(parts)))
    handle, asked = TieredHandle("orders", place, FileStore({})), AskedRows(pa.schema([("v", pa.string())]))
    read = [value for batch in handle.rows(1, 2, asked) for value in batch["v"].to_pylist()]
    assert read == ["5 1", None, "5 2", None]
    monkeypatch.setattr(TieredHandle, "_sorted", None)  # it would hold the whole ledger in memory
    assert sum(batch.num_rows for batch in handle.rows(0, 3, asked)) == 8


def values_of(file: DataFile, ledger: CommittedLedger, columns: pa.Schema) -> list[object]:
    handle = TieredHandle("orders", TieredPlace(TieredLedger(ledger, ""), (file,)), FileStore({}))
    return [value for batch in handle.rows(1, 2, AskedRows(columns)) for value in batch.column(0).to_pylist()]


@pytest.mark.parametrize("kept_bytes", [kept_group.MOST_BYTES, 1])
def test_a_row_group_of_several_ledgers_is_decoded_once_for_a_thread_that_reads_them_unless_it_is_large(
    files: DataFiles, monkeypatch: pytest.MonkeyPatch, kept_bytes: int
) -> None:
    monkeypatch.setattr(kept_group, "MOST_BYTES", kept_bytes)
    _, [file] = files.write("1-x", step(*LEDGERS), ())
    _, [other] = files.write("2-y", step(*reversed(LEDGERS)), ())
    decoded: list[str] = []
    batches = TierFile.batches
    monkeypatch.setattr(TierFile, "batches", lambda one, *asked: (decoded.append(one.what), batches(one, *asked))[1])
    text, number = pa.schema([("v", pa.string())]), pa.schema([("_row", pa.int64())])
    for _ in range(2):
        for one in LEDGERS:
            assert values_of(file, one, text) == [f"{one.ledger_id} 1", None, f"{one.ledger_id} 2", None]
    assert len(decoded) == (1 if kept_bytes > 1 else 6)
    assert values_of(file, LEDGERS[1], number) == [0, 1, 0, 1]
    assert values_of(other, LEDGERS[1], number) == [0, 1, 0, 1]
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(values_of, other, LEDGERS[2], text).result() == ["9 1", None, "9 2", None]
    assert values_of(other, LEDGERS[0], number) == [0, 1, 0, 1]
    assert len(decoded) == (4 if kept_bytes > 1 else 10)


def test_a_read_that_ends_in_the_middle_keeps_no_part_of_a_row_group(files: DataFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_rows, "BATCH_ROWS", 3)
    _, [file] = files.write("1-x", step(*LEDGERS), ())
    opened = TierFile(FileStore({}), file)
    names = ["v", *COLUMNS.names[1:]]
    next(opened.shared(0, 5, names))
    assert sum(one.num_rows for one in opened.shared(0, 9, names)) == 8
    assert sum(one.num_rows for one in opened.shared(0, 5, names)) == 8
    assert list(opened.shared(0, 4, names)) == []
    opened.close()


def test_a_rewritten_file_has_the_ledgers_that_stay_unchanged(files: DataFiles) -> None:
    content, [file] = files.write("1-x", step(*LEDGERS), ())
    _, [rewritten] = files.write("2-y", step(), [Rewrite(file, (5, 9))])
    assert files.read_back([rewritten]) == {5: content[5], 9: content[9]}
    assert table_of(rewritten)["_ledger_id"].to_pylist() == [5] * 8 + [9] * 8


def test_rows_that_others_put_in_another_order_and_other_files_are_the_same_rows(files: DataFiles, tmp_path: Path) -> None:
    content, [file] = files.write("1-x", step(*LEDGERS), ())
    rows = table_of(file).sort_by([("v", "ascending"), ("_row", "descending")])
    for name, part in (("a", rows.slice(0, 7)), ("b", rows.slice(7))):
        pq.write_table(part, tmp_path / name)
    others = [DataFile(f"file://{tmp_path}/{name}", 1, (5, 3, 9)) for name in "ab"]
    assert files.read_back(others) == content


OTHER_FORMS = [
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int32(), pa.string()),
]


@pytest.mark.parametrize("form", OTHER_FORMS, ids=str)
def test_rows_that_others_wrote_in_other_forms_of_arrow_are_the_same_rows(
    files: DataFiles, tmp_path: Path, form: pa.DataType
) -> None:
    content, [file] = files.write("1-x", step(*LEDGERS), ())
    rows = table_of(file)
    other = rows.set_column(0, "v", rows["v"].cast(pa.string()).cast(form) if form.num_fields else rows["v"].cast(form))
    pq.write_table(other, tmp_path / "other")
    theirs = DataFile(f"file://{tmp_path}/other", 1, (5, 3, 9))
    assert files.read_back([theirs]) == content
    _, [rewritten] = files.write("2-y", step(), [Rewrite(theirs, (5,))])
    assert files.read_back([rewritten]) == {5: content[5]}


@pytest.mark.parametrize("change", ["drop", "change", "add", "exchange"])
def test_every_change_of_a_ledgers_rows_shows_in_its_content_and_in_no_others(
    files: DataFiles, tmp_path: Path, change: str
) -> None:
    content, [file] = files.write("1-x", step(*LEDGERS), ())
    rows = table_of(file).to_pylist()
    if change == "drop":
        del rows[9]
    elif change == "change":
        rows[10]["v"] = "other"
    elif change == "add":
        rows.append({**rows[15], "_row": 2})
    else:
        rows[8]["_row"], rows[9]["_row"] = 1, 0
    pq.write_table(pa.Table.from_pylist(rows, COLUMNS), tmp_path / "changed")
    found = files.read_back([DataFile(f"file://{tmp_path}/changed", 1, (5, 3, 9))])
    assert (found[5], found[9]) == (content[5], content[9])
    assert found[3] != content[3]


def test_a_file_that_is_gone_or_is_none_is_damage_with_its_name(files: DataFiles, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no Parquet")
    pq.write_table(pa.table({"v": ["x"]}), tmp_path / "other")
    for name, problem in (("gone", "it is gone"), ("text", "no such Parquet file"), ("other", "no column _ledger_id")):
        with pytest.raises(CorruptionError, match=problem) as refused:
            TierFile(FileStore({}), DataFile(f"file://{tmp_path}/{name}", 1, (5,)))
        assert f"{tmp_path}/{name}" in str(refused.value)


def test_files_are_read_apart_unless_they_share_a_ledger() -> None:
    ledgers = [(1, 2), (3,), (4,), (2, 5), (6,), (5, 3)]
    named = [DataFile(f"f{place}", 1, one) for place, one in enumerate(ledgers)]
    assert [[one.path for one in part] for part in apart(named)] == [["f0", "f1", "f3", "f5"], ["f2"], ["f4"]]
    assert apart([]) == []


def test_a_task_that_is_carried_out_twice_writes_other_files(files: DataFiles) -> None:
    """A Spark task may be tried again while the first try still runs."""
    [_, [first]], [_, [again]] = (files.write("1-x", step(LEDGERS[0]), ()) for _ in range(2))
    assert first.path != again.path
    assert files.missing([first, again]) == []


def test_progress_tells_the_rows_and_bytes_of_the_step_and_then_of_the_files_that_are_read_back(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    large = tuple(replace(one, length=MIB) for one in LEDGERS)
    files = data_files(tmp_path, lambda *one: told.append(one))
    _, [file] = files.write("1-x", step(*large), ())
    assert [done for _, done, _ in told] == [2, 4, 6, 8, 8, 10, 12, 14, 16, 16, 18, 20, 22, 24, 24]
    assert {total for _, _, total in told} == {24}
    assert told[1][0] == "copied 0.5 of 3.0 MiB, rows"
    assert told[-1][0] == "copied 3.0 of 3.0 MiB, rows"
    told.clear()
    files.read_back([file])
    assert told == [("reading files back, bytes", file.size, file.size)]


@pytest.mark.parametrize("most", [1, 150, 400, 10**9])
def test_rows_in_another_order_are_proved_and_read_in_parts_that_fit_into_memory(
    files: DataFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    content, [file] = files.write("1-x", step(*LEDGERS), ())
    sorted_by_others = table_of(file).sort_by([("v", "descending"), ("_row", "descending")]).replace_schema_metadata(None)
    parts = []
    for number, (start, stop) in enumerate(((0, 11), (11, 24))):
        path = f"{tmp_path}/others-{number}.parquet"
        pq.write_table(sorted_by_others.slice(start, stop - start), path, row_group_size=5)
        parts.append(DataFile(f"file://{path}", Path(path).stat().st_size, file.ledgers))
    monkeypatch.setattr(row_order, "MOST_SORTED", most)
    monkeypatch.setattr(file_tasks, "MOST_SORTED", most)
    assert files.read_back(parts) == content
    handle = TieredHandle("orders", TieredPlace(TieredLedger(LEDGERS[1], ""), tuple(parts)), FileStore({}))
    asked = AskedRows(pa.schema([("v", pa.string())]))
    whole = [value for batch in handle.rows(0, 3, asked) for value in batch["v"].to_pylist()]
    assert whole == [value for entry in range(4) for value in (f"3 {entry}", None)]
    assert [value for batch in handle.rows(1, 2, asked) for value in batch["v"].to_pylist()] == whole[2:6]


def test_parts_follow_each_other_and_have_all_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_order, "MOST_SORTED", 100)
    assert list(row_order.parts_of(3, 12, 250)) == [(3, 6), (7, 10), (11, 12)]
    assert list(row_order.parts_of(0, 2, 10**6)) == [(0, 0), (1, 1), (2, 2)]
    assert list(row_order.parts_of(5, 9, 0)) == [(5, 9)]


@pytest.mark.parametrize("file_bytes", [1, 10**9])
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (1, 0), (1,)])
def test_each_ledger_is_named_by_a_file_of_a_partition_also_one_without_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_bytes: int, order: tuple[int, ...]
) -> None:
    monkeypatch.setattr(file_tasks, "GROUP_ROWS", 1)
    ledgers = [LEDGERS[0], CommittedLedger(70, -1, 0, 0), LEDGERS[2]]
    files = data_files(tmp_path, partition=(PartitionField("bucket", "v", 4),))
    tasks = groups([ledgers[place] for place in order])
    assert len(tasks) == 1
    monkeypatch.setattr(file_tasks, "FILE_BYTES", file_bytes)
    monkeypatch.setattr(data_files_module, "groups", lambda add: tasks)
    content, written = files.write("1-x", step(*tasks[0]), ())
    assert {one for file in written for one in file.ledgers} == {one.ledger_id for one in tasks[0]}
    assert files.read_back(written) == content
    for file in written:
        named = {one for one in file.ledgers if one != 70}
        assert set(table_of(file)["_ledger_id"].to_pylist()) == named
