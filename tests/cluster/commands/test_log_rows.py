"""``bk-spark log read`` and ``log append``: rows as files and as lines."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.log_handle import Log


@pytest.fixture(autouse=True)
def _metadata(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BK_SPARK_METADATA", cluster.metadata_uri)


@pytest.fixture
def log(cluster: LocalCluster) -> Iterator[Log]:
    with BookKeeper(cluster.metadata_uri) as client:
        yield client.open_log(f"rows-{uuid.uuid4().hex}", create=True)


ROWS = pa.table(
    {
        "id": pa.array([1, 2, None], pa.int32()),
        "name": ["a, b", 'say "c"', None],
        "day": pa.array([datetime.date(2026, 1, 31), None, None]),
        "tags": [["x"], [], None],
        "raw": [b"\x00\xff", b"", None],
    }
)


def run(*arguments: str) -> int:
    return main(["log", *arguments])


def written(log: Log, form: str, tmp_path: Path, *more: str) -> Path:
    path = tmp_path / f"rows.{form}"
    assert run("read", log.name, "--format", form, "--output", str(path), *more) == 0
    return path


def test_rows_are_read_in_every_format_and_appended_again_from_the_files(log, tmp_path, capsys):
    log.append_rows(ROWS)
    stored = log.read_rows().read_all()
    assert parquet.read_table(written(log, "parquet", tmp_path)).equals(stored)
    assert pa.ipc.open_file(written(log, "arrow", tmp_path)).read_all().equals(stored)
    assert csv.read_csv(written(log, "csv", tmp_path)).to_pylist()[:2] == [
        {"id": 1, "name": "a, b", "day": datetime.date(2026, 1, 31), "tags": '["x"]', "raw": "AP8="},
        {"id": 2, "name": 'say "c"', "day": None, "tags": "[]", "raw": ""},
    ]
    lines = written(log, "json", tmp_path).read_text().splitlines()
    assert json.loads(lines[0]) == {"id": 1, "name": "a, b", "day": "2026-01-31", "tags": ["x"], "raw": "AP8="}
    table = written(log, "table", tmp_path).read_text().splitlines()
    assert (len(table), table[0].split()) == (4, ["ID", "NAME", "DAY", "TAGS", "RAW"])
    for form in ("parquet", "arrow"):
        name = f"{log.name}-{form}"
        assert run("append", name, str(tmp_path / f"rows.{form}"), "--create", "--json") == 0
        assert json.loads(capsys.readouterr().out)["rows"] == 3
        assert run("read", name, "--format", "arrow", "--output", str(tmp_path / "again")) == 0
        assert pa.ipc.open_file(tmp_path / "again").read_all().equals(stored)


def test_the_newest_row_of_each_key_is_printed(log, capsys):
    log.append_rows(pa.table({"id": [1, 2, 1], "n": [1, 2, 3], "gone": [False, False, False]}), partition_key="id")
    log.append_rows(pa.table({"id": [2, 3], "n": [4, 5], "gone": [True, False]}))
    assert run("read", log.name, "--view", "latest", "--deleted-by", "gone", "--columns", "id,n") == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(found, key=str) == [{"id": 1, "n": 3}, {"id": 3, "n": 5}]
    assert run("read", log.name, "--view", "latest", "--where", "n < 5", "--columns", "id") == 0
    assert sorted(json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()) == [1, 2]
    assert run("read", log.name, "--view", "latest", "--deleted-by", "n") == 1
    assert "only a boolean says whether a row removes its key" in capsys.readouterr().err


def test_columns_conditions_and_limits_choose_what_is_printed(log, capsys):
    log.append_rows(pa.table({"id": range(1000), "name": ["x"] * 1000}))
    assert run("read", log.name, "--columns", "id", "--where", "id >= 998") == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [{"id": 998}, {"id": 999}]
    assert run("read", log.name, "--limit", "2") == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 2
    assert "only the first 2 are shown: --limit N shows more" in shown.err
    assert run("read", log.name) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1000
    assert run("read", log.name, "--format", "table") == 0
    assert "only the first 100 are shown: --limit N shows more" in capsys.readouterr().err
    assert run("read", log.name, "--format", "csv") == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 1001
    assert shown.err == ""


@pytest.mark.parametrize("name", ["all.parquet", "all.csv", "all.tsv", "all.jsonl", "all.arrow", "all.csv.gz", "all.json.zst"])
def test_a_file_holds_all_rows_in_the_format_that_its_name_says(log, tmp_path, capsys, name):
    log.append_rows(pa.table({"id": range(250), "name": ["x"] * 250}))
    path = tmp_path / name
    assert run("read", log.name, "--output", str(path), "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"log": log.name, "output": str(path), "rows": 250, "has_more": False}
    assert run("append", f"{log.name}-again", str(path), "--create") == 0
    with BookKeeper(log._logs.store.uri) as client:
        assert client.open_log(f"{log.name}-again").read_rows().read_all().to_pylist() == log.read_rows().read_all().to_pylist()
    assert run("read", log.name, "--output", str(path), "--limit", "3") == 0
    assert "3 rows" in capsys.readouterr().err


def test_entries_and_nothing_are_written_to_a_file_too(log, tmp_path, capsys):
    (tmp_path / "none.csv").write_text("of old")
    assert run("read", log.name, "--output", str(tmp_path / "none.csv")) == 0
    assert run("read", log.name, "--output", str(tmp_path / "none.parquet")) == 0
    assert ((tmp_path / "none.csv").read_text(), parquet.read_table(tmp_path / "none.parquet").num_rows) == ("", 0)
    with log.open_writer() as writer:
        writer.append_batch([b"one", b"two"])
    capsys.readouterr()
    assert run("read", log.name, "--output", str(tmp_path / "all.parquet")) == 0
    assert parquet.read_table(tmp_path / "all.parquet").column("payload").to_pylist() == [b"one", b"two"]
    assert capsys.readouterr().out == ""


def test_a_file_that_cannot_be_written_to_its_end_is_named(log, capsys):
    log.append_rows(pa.table({"id": range(250)}))
    assert run("read", log.name, "--output", "/dev/full", "--format", "csv") == 1
    assert "--output is '/dev/full': it cannot be written: No space left on device" in capsys.readouterr().err


def test_texts_are_appended_as_the_types_that_the_log_has(log, tmp_path, capsys):
    log.append_rows(pa.table({"id": pa.array([1], pa.int32()), "price": pa.array([1.5], pa.float32()), "name": ["a"]}))
    (tmp_path / "more.csv").write_text("id,price,name\n2,2.5,b\n3,,c\n")
    (tmp_path / "more.jsonl").write_text('{"id": 4, "name": "d"}\n')
    assert run("append", log.name, str(tmp_path / "more.csv")) == 0
    assert run("append", log.name, str(tmp_path / "more.jsonl")) == 0
    assert log.read_rows(["id", "price", "name"]).read_all().to_pylist()[1:] == [
        {"id": 2, "price": 2.5, "name": "b"},
        {"id": 3, "price": None, "name": "c"},
        {"id": 4, "price": None, "name": "d"},
    ]


EVERY_TYPE = pa.table(
    {
        "flag": [True, None],
        "n": pa.array([-(2**63), None], pa.int64()),
        "small": pa.array([0.1, float("nan")], pa.float32()),
        "x": [float("-inf"), -0.0],
        "price": pa.array([decimal.Decimal("-1.10"), None], pa.decimal128(38, 2)),
        "text": ["", None],
        "word": ["NA, null\n\\N", '"'],
        "raw": [b"", b"\x00\xff"],
        "day": pa.array([-(2**31), None], pa.int32()).view(pa.date32()),
        "time": pa.array([datetime.time(23, 59, 59, 999_999), None], pa.time64("us")),
        "at": pa.array([2**63 - 1, -1], pa.int64()).view(pa.timestamp("us", "UTC")),
        "local": pa.array([-(2**63), None], pa.int64()).view(pa.timestamp("us")),
        "took": pa.array([-1, None], pa.int64()).view(pa.duration("us")),
        "tags": [[None, ""], None],
        "by": pa.array(
            [[(datetime.date(2026, 1, 31), [{"a": None}])], None],
            pa.map_(pa.date32(), pa.list_(pa.struct([("a", pa.binary())]))),
        ),
        "nothing": pa.nulls(2),
    }
)


@pytest.mark.parametrize("form", ["csv", "json", "tsv", "parquet", "arrow"])
def test_what_is_read_in_any_format_is_appended_to_a_log_of_the_same_schema_as_the_same_rows(log, tmp_path, form, capsys):
    log.append_rows(EVERY_TYPE)
    assert run("append", log.name, str(written(log, form, tmp_path))) == 0
    stored = log.read_rows().read_all()
    first, second = stored.slice(0, 2).combine_chunks(), stored.slice(2).combine_chunks()
    assert second.num_rows == 2
    for name in stored.schema.names:
        assert str(second[name].combine_chunks()) == str(first[name].combine_chunks()), name


def test_a_failed_append_leaves_nothing_not_even_the_log_that_it_was_to_create(log, cluster, tmp_path, capsys):
    name = f"{log.name}-new"
    (tmp_path / "1.csv").write_text("id\n1\n")
    for bad in ("id,paid\n1,2\n", "ID\n1\n", "id\n00501\n", 'id\n"1'):
        (tmp_path / "2.csv").write_text(bad)
        assert run("append", name, str(tmp_path / "1.csv"), str(tmp_path / "2.csv"), "--create", "--types", "id:bigint") == 1
        assert "2.csv" in capsys.readouterr().err
    with BookKeeper(cluster.metadata_uri) as client:
        assert name not in client.list_logs()
        (tmp_path / "2.csv").write_text("id\n2\n")
        assert run("append", name, str(tmp_path / "1.csv"), str(tmp_path / "2.csv"), "--create", "--password", "p") == 0
        assert client.open_log(name, password=b"p").read_rows().read_all().to_pydict() == {"id": [1, 2]}
        assert len(client.open_log(name).versions()) == 1


def test_standard_input_is_an_arrow_stream(log, capsys, monkeypatch):
    out = io.BytesIO()
    with pa.ipc.new_stream(out, pa.schema([("id", pa.int64())])) as writer:
        for number in range(3):
            writer.write_batch(pa.record_batch({"id": [number]}))
    for data, code in ((out.getvalue()[:-8], 1), (out.getvalue(), 0)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))
        assert run("append", log.name, "-") == code
    assert "perhaps cut off" in capsys.readouterr().err
    assert log.read_rows().read_all().to_pydict() == {"id": [0, 1, 2]}


def test_a_file_is_written_whole_or_not_at_all(log, tmp_path, capsys):
    log.append_rows(pa.table({"text": pa.array([b"\xff"]).view(pa.string())}))
    path = tmp_path / "rows.csv"
    path.write_text("before")
    assert run("read", log.name, "--format", "csv", "--output", str(path)) == 1
    assert "is not UTF-8" in capsys.readouterr().err
    assert path.read_text() == "before"
    assert [one.name for one in tmp_path.iterdir()] == ["rows.csv"]
    assert run("read", log.name, "--format", "json", "--output", str(path)) == 0
    assert json.loads(path.read_text()) == {"text": "\udcff"}


def test_several_files_are_one_commit_and_an_application_version_goes_in_once(log, tmp_path, capsys):
    for number in (1, 2):
        parquet.write_table(pa.table({"id": [number]}), tmp_path / f"{number}.parquet")
    files = [str(tmp_path / "1.parquet"), str(tmp_path / "2.parquet")]
    for expected in ({"rows": 2}, {"rows": 0, "duplicate_of": 1}):
        assert run("append", log.name, *files, "--application", "job:a:1", "--json") == 0
        assert json.loads(capsys.readouterr().out).items() >= expected.items()
    assert len(log.versions()) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("append", "NAME", "nothing.parquet"), "there is no such file"),
        (("append", "NAME", "broken.parquet"), "it cannot be read as parquet"),
        (("append", "NAME", "broken.jsonl"), "it cannot be read as json"),
        (("append", "no such log", "broken.jsonl"), "there is no log"),
        (("read", "NAME", "--columns", "price"), "has the columns id"),
        (("read", "NAME", "--output", "/nowhere/at/all.csv"), "it cannot be written"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_one_line(log, tmp_path, capsys, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    log.append_rows(pa.table({"id": [1]}))
    for name in ("broken.parquet", "broken.jsonl"):
        (tmp_path / name).write_text("{[")
    assert run(*(log.name if one == "NAME" else one for one in arguments)) == 1
    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(("append", "NAME", "broken.txt"), "or give --format"), (("read", "NAME", "--where", "id LIKES 1"), "id LIKES 1")],
)
def test_what_the_arguments_show_to_be_wrong_is_wrong_usage(capsys, arguments, says):
    with pytest.raises(SystemExit, match="2"):
        run(*arguments)
    assert says in capsys.readouterr().err


def test_entries_are_printed_as_text_or_given_as_columns(log, tmp_path, capsys):
    with log.open_writer() as writer:
        writer.append_batch([b"one", b"two"])
    assert run("read", log.name, "--limit", "1") == 0
    shown = capsys.readouterr()
    assert [line.split("\t")[1] for line in shown.out.splitlines()] == ["one"]
    assert "only the first 1 are shown" in shown.err
    assert pa.ipc.open_file(written(log, "arrow", tmp_path)).read_all().column("payload").to_pylist() == [b"one", b"two"]
    assert run("read", log.name, "--columns", "payload") == 1
    assert "--columns, --where and --view are for rows" in capsys.readouterr().err


def test_a_log_without_content_prints_nothing(log, capsys):
    assert run("read", log.name) == 0
    assert capsys.readouterr().out == ""
