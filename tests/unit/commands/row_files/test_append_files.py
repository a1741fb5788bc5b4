"""``log append``: every column of every file is accounted for, and no value is changed."""

from __future__ import annotations

import gzip
import io
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from bk_spark.commands.output import ProgressBar
from bk_spark.commands.program.parser import UsageError
from bk_spark.commands.row_files import csv_source, json_source
from bk_spark.commands.row_files.append_files import AppendedFiles, read_files
from bk_spark.commands.row_files.named_file import named_files
from bk_spark.errors import BookKeeperError
from bk_spark.rows.arrow_types import arrow_schema
from tests.unit.commands.row_files.files import Folder, appended

VARIANT = arrow_schema({"fields": [{"name": "v", "type": "variant", "nullable": True, "metadata": {}}]}).field("v").type
IDS = pa.schema([("id", pa.int64())])


def _short(value: object) -> str:
    return repr(value)[:60]


@pytest.fixture
def put(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def refusal(*paths: Path, **options) -> str:
    with pytest.raises((BookKeeperError, UsageError)) as refused:
        appended(*paths, **options)
    said = str(refused.value)
    assert "\n" not in said
    return said


def put_parquet(put: Folder, name: str, columns: dict) -> Path:
    parquet.write_table(pa.table(columns), put.path / name)
    return put.path / name


# --- columns


def test_a_column_that_only_a_later_file_has_is_refused_by_the_names_of_file_and_column(put):
    for one, two in (("1.parquet", "2.parquet"), ("1.csv", "2.jsonl")):
        if one.endswith("parquet"):
            files = put_parquet(put, one, {"id": [1]}), put_parquet(put, two, {"id": [2], "paid": [250]})
        else:
            files = put(one, "id\n1\n"), put(two, '{"id": 2, "paid": 250}\n')
        for order in (files, files[::-1]):
            said = refusal(*order)
            assert f"{two}' has the column 'paid' (bigint)" in said
            assert "--merge-schema" in said
            rows = appended(*order, merge=True).to_pylist()
            assert sorted(rows, key=lambda row: row["id"]) == [{"id": 1, "paid": None}, {"id": 2, "paid": 250}]


@pytest.mark.parametrize(
    ("name", "data"), [("x.csv", "id,paid\n2,250\n"), ("x.tsv", "id\tpaid\n2\t250\n"), ("x.json", '{"id":2,"paid":250}')]
)
def test_a_column_that_the_log_lacks_is_refused_or_added(put, name, data):
    path = put(name, data)
    assert f"{name}': the log has no column 'paid' (bigint)" in refusal(path, log=IDS)
    assert appended(path, log=IDS, merge=True).to_pylist() == [{"id": 2, "paid": 250}]


def test_a_field_of_a_struct_is_accounted_for_like_a_column(put):
    one, two = put("1.jsonl", '{"s": {"x": 1}}'), put("2.jsonl", '{"s": {"x": 2, "y": [{"z": 3}]}}')
    assert "column 's' is struct<x:bigint> in the files before it" in refusal(one, two)
    assert appended(one, two, merge=True).to_pylist() == [{"s": {"x": 1, "y": None}}, {"s": {"x": 2, "y": [{"z": 3}]}}]
    log = pa.schema([("s", pa.struct([("x", pa.int16()), ("w", pa.date32())]))])
    assert appended(one, log=log).to_pylist() == [{"s": {"x": 1, "w": None}}]
    assert "2.jsonl': column 's' is" in refusal(two, log=log)


@pytest.mark.parametrize("merge", [False, True])
def test_a_name_that_differs_in_case_alone_is_refused(put, merge):
    assert "'id' and 'ID'" in refusal(put("1.csv", "id\n1\n"), put("2.csv", "ID\n1\n"), merge=merge)
    assert "'ID' and 'id'" in refusal(put("2.jsonl", '{"ID": 1, "id": 2}'), merge=merge)
    assert "'id' and 'ID'" in refusal(put_parquet(put, "x.parquet", {"ID": [1]}), log=IDS, merge=merge)


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize(
    ("name", "data"), [("else.csv", "host,load\nx,5\n"), ("else.json", '{"host": "x"}'), ("else.json", "{}\n")]
)
def test_a_text_of_something_else_is_refused(put, merge, name, data):
    assert "it shares no column with log 'log'" in refusal(put(name, data), log=IDS, merge=merge)


def test_files_of_several_formats_go_together_with_the_types_of_parquet(put):
    files = (
        put_parquet(put, "1.parquet", {"id": pa.array([1], pa.int32())}),
        put("2.csv", "id\n2\n"),
        put("3.jsonl", '{"id": 3}'),
    )
    assert appended(*files).to_pydict() == {"id": [1, 2, 3]}
    assert appended(*files).schema.field("id").type == pa.int32()


def test_columns_that_the_log_has_may_be_missing_in_some_files(put):
    log = pa.schema([("id", pa.int64()), ("name", pa.string())])
    files = put("1.csv", "id\n1\n"), put("2.jsonl", '{"name": "x"}')
    assert appended(*files, log=log).to_pylist() == [{"id": 1, "name": None}, {"id": None, "name": "x"}]


# --- types and values


def test_a_type_that_the_first_block_does_not_show_is_seen(put, monkeypatch):
    monkeypatch.setattr(csv_source, "BLOCK_BYTES", 256)
    monkeypatch.setattr(json_source, "BLOCK_BYTES", 256)
    numbers = "".join(f"{n}\n" for n in range(1000))
    assert appended(put("a.csv", f"n\n{numbers}00501\n"))["n"].to_pylist()[-2:] == ["999", "00501"]
    assert appended(put("b.csv", f"n\n{numbers}1.5\n"))["n"].to_pylist()[-2:] == [999.0, 1.5]
    lines = "".join(f'{{"n": {n}}}\n' for n in range(1000))
    assert appended(put("c.jsonl", lines + '{"n": 1.5, "m": 1}\n')).to_pylist()[-2:] == [
        {"n": 999.0, "m": None},
        {"n": 1.5, "m": 1},
    ]
    assert "column 'n'" in refusal(put("d.jsonl", lines + '{"n": "x"}\n'))


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1", "-7", "0"], [1, -7, 0]),
        (["00501", "1"], ["00501", "1"]),
        (["9223372036854775808"], ["9223372036854775808"]),
        (["+4912345"], ["+4912345"]),
        (["1.10", "2"], [1.1, 2.0]),
        (["1", "0.10000000000000000555"], [1.0, 0.1]),
        (["1234567890123456789.5"], ["1234567890123456789.5"]),
        (["12e5"], ["12e5"]),
        (["1.5e+300", "NaN"], [1.5e300, pytest.approx(float("nan"), nan_ok=True)]),
        (["NaN"], ["NaN"]),
        (["true", "FALSE"], [True, False]),
        (["true", "1"], ["true", "1"]),
        (["2026-01-31"], [date(2026, 1, 31)]),
        (["2026-02-30"], ["2026-02-30"]),
        (["0001-01-01", "9999-12-31"], [date(1, 1, 1), date(9999, 12, 31)]),
        (["0000-01-01"], ["0000-01-01"]),
        (["-0001-01-01"], ["-0001-01-01"]),
        (["10000-01-01T00:00:00Z"], ["10000-01-01T00:00:00Z"]),
        (["9" * 5000], ["9" * 5000]),
        (["2026-01-31 12:00:00"], [datetime(2026, 1, 31, 12)]),
        (["2026-01-31T12:00:00.5Z"], [datetime(2026, 1, 31, 12, microsecond=500_000, tzinfo=UTC)]),
        (["2026-01-31T12:00:00+02:00"], ["2026-01-31T12:00:00+02:00"]),
        (["2026-01-31T12:00:00.123456789Z"], ["2026-01-31T12:00:00.123456789Z"]),
        (["12:30"], ["12:30"]),
        (["", ""], [None, None]),
        ([" 1"], [" 1"]),
    ],
    ids=_short,
)
def test_a_column_that_nobody_knows_is_text_unless_all_of_it_is_something_else(put, texts, expected):
    path = put("x.csv", "k,v\n" + "".join(f"a,{text}\n" for text in texts))
    assert appended(path)["v"].to_pylist() == expected


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        (pa.int64(), "00501", "'00501' of column 'v' would lose its leading zeros"),
        (pa.int64(), "1.5", "is no whole number"),
        (pa.int64(), "+5", "is no whole number"),
        (pa.int8(), "128", "does not fit int8"),
        (pa.bool_(), "7", "is neither true nor false"),
        (pa.bool_(), "1", "is neither true nor false"),
        (pa.float64(), "12345678901234567.89", "would become 1.2345678901234568e+16"),
        (pa.float64(), "1e400", "would become inf"),
        (pa.float32(), "16777217", "would become 16777216.0"),
        (pa.decimal128(5, 2), "1.234", "without a change"),
        (pa.decimal128(5, 2), "1234.5", "without a change"),
        (pa.decimal128(38, 0), "9" * 39, "without a change"),
        (pa.decimal128(10, 0), str(2**128 + 1), "without a change"),
        (pa.decimal128(5, 2), "1e99999999999999999999", "without a change"),
        (pa.duration("us"), f"PT{'9' * 5000}S", "is no duration"),
        (pa.date32(), "-001-01-01", "is no date"),
        (pa.list_(pa.int64()), "[" * 100_000, "is not JSON"),
        (pa.date32(), "31.01.2026", "is no date"),
        (pa.timestamp("us", "UTC"), "2026-01-31 12:00:00", "has no zone"),
        (pa.timestamp("us"), "2026-01-31 12:00:00Z", "has a zone"),
        (pa.timestamp("us"), "2026-01-31 12:00:00.0000001", "finer than a microsecond"),
        (pa.time64("us"), "24:00:00", "is no time of a day"),
        (pa.binary(), "x", "is not base64"),
        (pa.list_(pa.int64()), "1;2", "is not JSON"),
        (pa.struct([("a", pa.int64())]), '{"a": 1, "a": 2}', "twice"),
    ],
    ids=_short,
)
def test_a_text_that_the_log_s_type_would_change_is_refused_with_file_column_and_value(put, kind, text, says):
    quoted = text.replace('"', '""')
    said = refusal(put("x.csv", f'k,v\na,"{quoted}"\n'), log=pa.schema([("k", pa.string()), ("v", kind)]))
    assert says in said
    assert "x.csv" in said
    assert "the column's type is that of the log" in said
    assert "--types" not in said


@pytest.mark.parametrize(
    ("name", "data", "types"),
    [
        ("x.csv", "v\nx\n", "v:bigint"),
        ("x.csv", '"v,w"\nx\n', "`v,w`:bigint"),
        ("x.csv", '" v"\nx\n', "` v`:bigint"),
        ("x.csv", '"`"\nx\n', "````:bigint"),
        ("x.csv", '"a.b"\nx\n', "a.b:bigint"),
        ("x.jsonl", '{"v": 1}\n{"v": "x"}\n', ""),
        ("x.jsonl", '{"v": true}\n{"v": 1}\n', ""),
        ("x.jsonl", '{"v": 9223372036854775808}\n', ""),
    ],
)
def test_the_advice_to_keep_texts_helps_where_it_is_given(put, name, data, types):
    path = put(name, data)
    said = refusal(path, types=types)
    advised = re.search("'--types (.*):string' keeps texts as they are", said)
    assert advised
    assert appended(path, types=f"{advised[1]}:string").num_rows


@pytest.mark.parametrize("types", ["", "a:string", "a:bigint"])
@pytest.mark.parametrize(
    "data",
    [
        '{"a":{"b":1}}\n{"a":"x"}\n',
        '{"a":"x"}\n{"a":{"b":1}}\n',
        '{"a":[1,"x"]}',
        '{"a":{}}',
        '{"a":"\\ud800"}',
        '{"a":[]}\n{"a":1}\n',
    ],
)
def test_no_advice_is_given_where_it_does_not_help(put, data, types):
    assert "--types a:string" not in refusal(put("x.jsonl", data), types=types)


def test_no_advice_is_given_against_the_type_of_a_parquet_file(put):
    files = put_parquet(put, "1.parquet", {"v": [1]}), put("2.csv", "v\nx\n")
    for order in (files, files[::-1]):
        assert "Parquet or Arrow file: correct the value" in refusal(*order)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (pa.int32(), "7.0", 7),
        (pa.float64(), "7", 7.0),
        (pa.float64(), "0.1", 0.1),
        (pa.decimal128(5, 2), "1.100", Decimal("1.10")),
        (pa.decimal128(38, 0), f"{'9' * 38}.0", Decimal("9" * 38)),
        (pa.decimal128(38, 38), f"-0.{'1' * 38}000", Decimal(f"-0.{'1' * 38}")),
        (pa.decimal128(5, 2), "-99999e-2", Decimal("-999.99")),
        (pa.decimal128(38, 38), "0e99", Decimal(0)),
        (pa.string(), "00501", "00501"),
        (pa.bool_(), "TRUE", True),
        (pa.timestamp("us", "UTC"), "2026-01-31 12:00+02:00", datetime(2026, 1, 31, 10, tzinfo=UTC)),
        (pa.list_(pa.int64()), "[1, null]", [1, None]),
        (pa.map_(pa.string(), pa.int64()), '{"a": 1}', [("a", 1)]),
    ],
    ids=_short,
)
def test_a_text_that_says_the_same_is_taken(put, kind, text, expected):
    quoted = text.replace('"', '""')
    path = put("x.csv", f'k,v\na,"{quoted}"\nb,\n')
    assert appended(path, log=pa.schema([("k", pa.string()), ("v", kind)]))["v"].to_pylist() == [expected, None]


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        (pa.bool_(), "7", "is neither true nor false"),
        (pa.int64(), "true", "is no whole number"),
        (pa.int64(), '"7"', "is no whole number"),
        (pa.int64(), "1.5", "is no whole number"),
        (pa.int64(), "1e30", "is no whole number"),
        (pa.int64(), "9223372036854775808", "does not fit int64"),
        (pa.string(), "7", "is no string"),
        (pa.string(), '"\\ud800"', "half of a character"),
        (pa.float64(), "9007199254740993", "would become"),
        (pa.list_(pa.int64()), "{}", "is no array"),
        (pa.struct([("a", pa.int8())]), '{"a": 300}', "'v.a' does not fit int8"),
        (pa.map_(pa.string(), pa.int64()), '[["a", 1, 2]]', "not [key, value]"),
        (pa.int64(), "9" * 5000, "does not fit int64"),
        (pa.decimal128(38, 0), "9" * 39, "without a change"),
        (VARIANT, '{"value": "AA=="}', "lacks 'metadata'"),
        (VARIANT, '{"value": null, "metadata": ""}', "lacks 'value'"),
    ],
    ids=_short,
)
def test_a_value_of_json_that_the_log_s_type_would_change_is_refused(put, kind, value, says):
    said = refusal(put("x.jsonl", f'{{"v": {value}}}'), log=pa.schema([("v", kind)]))
    assert says in said
    assert "x.jsonl" in said


def test_types_that_are_given_win_over_what_is_guessed(put):
    path = put("x.csv", "id,price,zip\n7,1.10,1234\n")
    table = appended(path, types="zip:string, price:decimal(10, 2),id:INT")
    assert table.to_pylist() == [{"id": 7, "price": Decimal("1.10"), "zip": "1234"}]
    assert table.schema.field("id").type == pa.int32()
    assert appended(put("x.jsonl", '{"v": 1}\n{"v": "x"}\n{"v": 1.50}'), types="v:string")["v"].to_pylist() == [
        "1",
        "x",
        "1.50",
    ]
    assert "no CSV or JSON file has this column" in refusal(path, types="nothing:string")
    assert "'id' is bigint in the log and string in the data" in refusal(path, log=IDS, types="id:string", merge=True)


def test_texts_that_are_null_are_named_and_a_quoted_text_never_is(put):
    path = put("x.csv", 'n,s\n1,NA\nNA,"NA"\n,""\n"",x\n')
    table = appended(path, types="n:bigint", nulls=("NA",))
    assert table.to_pydict() == {"n": [1, None, None, None], "s": [None, "NA", "", "x"]}
    assert "no file is CSV" in refusal(put("x.jsonl", '{"a": 1}'), nulls=("NA",))


# --- files


def test_a_csv_file_of_one_column_keeps_its_nulls(put):
    assert appended(put("x.csv", "v\n1\n\n3\n")).to_pydict() == {"v": [1, None, 3]}


@pytest.mark.parametrize(
    ("data", "rows"),
    [("id", 0), ("id\n", 0), ("id\n1", 1), ("\ufeffid\r\n1\r\n", 1), ('"id"\n1\n', 1), ("\n\nid\n1\n", 1)],
    ids=_short,
)
def test_the_first_row_of_a_csv_file_names_the_columns_however_it_ends(put, data, rows):
    assert appended(put("x.csv", data), log=IDS).to_pydict() == {"id": [1] * rows}


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("x.csv", "", "its first row must name the columns"),
        ("x.csv", 'id,s\n1,"cut', "a quote is open at its end"),
        ("x.csv", 'id,s\n1,"cut\n2,x\n', "a quote is open at its end"),
        ("x.csv", 'id,s\n1,x\n"2,y\n3,z\n', "a quote is missing in row 3, which begins with '\"2,y'"),
        ("x.arrow", "", "it is empty"),
        ("x.csv", "id,s\n1,x,y\n", "Expected 2 columns, got 3"),
        ("x.csv", "id,id\n1,2\n", "the column 'id' twice"),
        ("x.csv", "id,s\n" + '1,"x\ny"\n' * 3 + "2\n", "Row #5: Expected 2 columns, got 1: 2"),
        ("x.csv", b"id,s\n1,\xe9\n", "row 2 has b'\\xe9' in column 's', which is not UTF-8"),
        ("x.csv", b"id,s\n" + b"1,x\n" * 5000 + b"2,\xe9\n", "row 5002 has b'\\xe9' in column 's'"),
        ("x.csv", b"id,\xe9\n1,x\n", "the name b'\\xe9' in its first row is not UTF-8"),
        ("x.csv", "id\n1\n".encode("utf-16"), "is not UTF-8"),
        ("x.csv", b"PAR1\x15\x04\x15\x80\xd4a", "is not UTF-8"),
        ("x.jsonl", '{"\\ud800": 1}', "the name '\\ud800' has half of a character"),
        ("x.jsonl", '{"s": {"\\ud800": 1}}', "the name '\\ud800' has half of a character"),
        ("x.jsonl", '{"v": ' + "[" * 64 + "1" + "]" * 64 + "}", "column 'v' is nested too deeply"),
        ("x.jsonl", '{"v": ' * 500 + "1" + "}" * 500, "column 'v' is nested too deeply"),
        ("x.jsonl", '{"v": ' + "[" * 100_000, "line 1"),
        ("x.csv.gz", gzip.compress(b"id\n" + b"1\n" * 9, mtime=0)[:-9], "cannot be read as csv"),
        ("x.jsonl", '[{"id": 1}]', "makes lines of an array"),
        ("x.jsonl", '[\n{"id": 1}\n]', "an array of objects must be lines"),
        ("x.jsonl", '{"id": 1}\n{"id": 2', "line 2"),
        ("x.jsonl", '{"id": 1, "id": 2}', "the name 'id' twice"),
        ("x.jsonl", b'{"id": "\xe9"}', "line 1"),
        ("x.jsonl", '{"s": {}}', "no column can hold it"),
        ("x.jsonl", "", "it has no column"),
        ("x.parquet", "id\n1\n", "cannot be read as parquet"),
        ("x.arrow", "id\n1\n", "cannot be read as arrow"),
        ("x.txt", "id\n1\n", "its name must end in one of"),
        ("x.parquet.gz", "", "its name must end in one of"),
    ],
    ids=_short,
)
def test_a_file_that_is_not_whole_or_not_what_its_name_says_is_refused(put, name, data, says):
    said = refusal(put(name, data))
    assert says in said
    assert name in said


def test_directories_and_pipes_are_no_files(put):
    import os

    (put.path / "d.parquet").mkdir()
    os.mkfifo(put.path / "p.csv")
    assert "name the files in it" in refusal(put.path / "d.parquet")
    assert "pipe it into '-'" in refusal(put.path / "p.csv")
    assert "there is no such file" in refusal(put.path / "none.csv")


def test_compressed_texts_are_read(put):
    for name in ("x.csv.gz", "x.CSV.GZ"):
        assert appended(put(name, gzip.compress(b"id\n1\n") + gzip.compress(b"2\n"))).to_pydict() == {"id": [1, 2]}
    assert appended(put("x.tsv.gz", gzip.compress(b"id\ts\n1\ta,b\n"))).to_pylist() == [{"id": 1, "s": "a,b"}]
    assert appended(put("x.jsonl.gz", gzip.compress(b'{"id": 1}\n'))).to_pydict() == {"id": [1]}


def test_a_row_that_is_longer_than_a_block_is_read(put, monkeypatch):
    monkeypatch.setattr(csv_source, "BLOCK_BYTES", 64)
    rows = [(n, "x\n" * (n * 40 % 700)) for n in range(40)]
    path = put("x.csv", "id,s\n" + "".join(f'{n},"{text}"\n' for n, text in rows))
    assert [(row["id"], row["s"]) for row in appended(path).to_pylist()] == rows


def test_line_ends_in_quotes_are_kept_wherever_a_block_ends(put, monkeypatch):
    rows = [(n, "a\r\n\r\r\n" * (n % 5)) for n in range(40)]
    path = put("x.csv", "\ufeffid,s\r\n" + "".join(f'{n},"{text}"\r\n' for n, text in rows))
    for block_bytes in (64, 65, 66, 67):
        monkeypatch.setattr(csv_source, "BLOCK_BYTES", block_bytes)
        assert [(row["id"], row["s"]) for row in appended(path).to_pylist()] == rows


def test_a_negative_zero_of_json_keeps_its_sign(put):
    assert [str(one) for one in appended(put("x.jsonl", '{"v": -0}\n{"v": 1}'))["v"].to_pylist()] == ["-0.0", "1.0"]
    assert appended(put("x.jsonl", '{"id": -0}'), log=IDS)["id"].to_pylist() == [0]


def test_a_null_variant_is_read(put):
    path = put("x.jsonl", '{"v": null}\n{"v": {"value": "AA==", "metadata": ""}}')
    assert appended(path, log=pa.schema([("v", VARIANT)]))["v"].to_pylist() == [None, {"value": b"\0", "metadata": b""}]


def test_files_without_rows_and_dictionaries_that_grow_are_read(put):
    parquet.write_table(IDS.empty_table(), put.path / "x.parquet")
    with parquet.ParquetWriter(put.path / "y.parquet", IDS):
        pass
    assert appended(put.path / "x.parquet", put.path / "y.parquet").num_rows == 0
    schema = pa.schema([("s", pa.dictionary(pa.int32(), pa.string()))])
    parts = [(["a", "b"], [0, None]), (["a", "b", "c"], [2, 0])]
    batches = [
        pa.record_batch([pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(words))], schema=schema)
        for words, places in parts
    ]
    for name, start in (("x.arrow", pa.ipc.new_file), ("x.arrows", pa.ipc.new_stream)):
        with start(put.path / name, schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)) as writer:
            for batch in batches:
                writer.write_batch(batch)
        assert appended(put.path / name).to_pydict() == {"s": ["a", None, "c", "a"]}


def test_arrow_files_and_streams_are_told_apart_and_a_stream_that_was_cut_off_is_refused(put):
    table = pa.table({"id": pa.array([1, 2], pa.int16())})
    file, stream = io.BytesIO(), io.BytesIO()
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
        writer.write_table(table)
    assert appended(put("x.arrow", file.getvalue())).equals(table)
    assert appended(put("x.arrows", stream.getvalue()))["id"].to_pylist() == [1, 2, 1, 2]
    assert "the program that wrote it was perhaps cut off" in refusal(put("y.arrow", stream.getvalue()[:-8]))


def test_a_file_that_changes_after_it_was_looked_at_ends_the_append(put):
    for name, before, after in (("x.csv", "id\n1\n", "id\n12\n"), ("x.jsonl", '{"id": 1}', '{"id": 12}')):
        path = put(name, before)
        reader = read_files(AppendedFiles("log", None, named_files([str(path)], None)), ProgressBar())
        put(name, after)
        with pytest.raises(BookKeeperError, match="it changed while it was read"):
            reader.read_all()


def test_what_a_log_cannot_store_is_told_of_the_file(put):
    import pyarrow.compute as pc

    path = put.path / "x.arrow"
    table = pa.table({"v": pa.array([None], pa.month_day_nano_interval())})
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    said = refusal(path)
    assert "x.arrow" in said
    assert "column 'v'" in said
    far = pc.cast(pa.array([2**31 - 1], pa.int32()), pa.date32())
    files = put_parquet(put, "1.parquet", {"d": far}), put_parquet(put, "2.parquet", {"d": pa.array([0], pa.timestamp("us"))})
    assert "1.parquet" in refusal(*files, merge=True)
