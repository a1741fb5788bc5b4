"""Values of messages as typed columns: each type, what does not fit, and the version that each message was written with."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.errors import ConfigError
from bk_spark.pulsar.schemas import TopicSchema, topic_schema
from bk_spark.pulsar.values.converted import Converted
from bk_spark.pulsar.values.typed_values import ValueReader

UTC_TIME = pa.timestamp("us", tz="UTC")
MOST = 2**63 - 1


def never(version: bytes) -> TopicSchema:
    raise AssertionError(f"nobody asks for version {version!r}")


def convert(
    schema: TopicSchema,
    values: Sequence[bytes | None],
    versions: Sequence[bytes | None] | None = None,
    schema_of: Callable[[bytes], TopicSchema] = never,
) -> Converted:
    """Checked: the column is whole, of the reader's type, and as long as the values; problems are null, other nulls were."""
    reader = ValueReader(schema)
    given_versions = pa.array(versions or [None] * len(values), pa.binary())
    converted = reader.convert(pa.array(values, pa.binary()), given_versions, schema_of)
    converted.values.validate(full=True)
    assert converted.values.type == reader.arrow_type
    assert len(converted.values) == len(values)
    rows = [one.row for one in converted.problems]
    assert rows == sorted(set(rows))
    assert all(values[row] is not None and converted.values[row].as_py() is None for row in rows)
    return converted


def column(schema: TopicSchema | str, values: Sequence[bytes | None]) -> list[Any]:
    converted = convert(TopicSchema(schema) if isinstance(schema, str) else schema, values)
    assert converted.problems == ()
    rows: list[Any] = converted.values.to_pylist()
    return rows


def at(*fields: int) -> datetime:
    return datetime(*fields, tzinfo=UTC)


# Primitive types

PRIMITIVES = [
    ("BOOLEAN", [b"\0", b"\1", b"\xff"], [False, True, True], pa.bool_()),
    ("INT8", [b"\x80", b"\x7f"], [-128, 127], pa.int8()),
    ("INT16", [b"\x80\0", b"\x01\x02"], [-(2**15), 0x102], pa.int16()),
    ("INT32", [b"\x80\0\0\0", b"\1\2\3\4"], [-(2**31), 0x1020304], pa.int32()),
    ("INT64", [b"\x80" + bytes(7), b"\1\2\3\4\5\6\7\x08"], [-(2**63), 0x102030405060708], pa.int64()),
    ("FLOAT", [b"\x3f\x80\0\0", b"\xc0\0\0\0"], [1.0, -2.0], pa.float32()),
    ("DOUBLE", [b"\x3f\xf0" + bytes(6), b"\x7f\xf0" + bytes(6)], [1.0, float("inf")], pa.float64()),
    ("DATE", [struct.pack(">q", 86_400_001)], [at(1970, 1, 2, 0, 0, 0, 1_000)], UTC_TIME),
    ("TIME", [struct.pack(">q", 1_000)], [at(1970, 1, 1, 0, 0, 1)], UTC_TIME),
    ("TIMESTAMP", [struct.pack(">q", -1)], [at(1969, 12, 31, 23, 59, 59, 999_000)], UTC_TIME),
    ("INSTANT", [struct.pack(">qi", -1, 999_999_999)], [at(1969, 12, 31, 23, 59, 59, 999_999)], UTC_TIME),
    ("LOCAL_DATE", [struct.pack(">q", -1)], [date(1969, 12, 31)], pa.date32()),
    ("LOCAL_TIME", [struct.pack(">q", 86_399_999_999_999)], [86_399_999_999_999], pa.int64()),
    ("LOCAL_DATE_TIME", [struct.pack(">qq", 1, 3_600_000_001_000)], [datetime(1970, 1, 2, 1, 0, 0, 1)], pa.timestamp("us")),
    ("STRING", ["grün".encode(), b""], ["grün", ""], pa.string()),
    ("BYTES", [b"\xff", b""], [b"\xff", b""], pa.binary()),
    ("NONE", [b"\xff"], [b"\xff"], pa.binary()),
]


@pytest.mark.parametrize(("kind", "stored", "wanted", "arrow"), PRIMITIVES, ids=[one[0] for one in PRIMITIVES])
def test_a_value_is_read_as_its_type_is_stored(kind: str, stored: list[bytes], wanted: list[Any], arrow: pa.DataType) -> None:
    assert ValueReader(TopicSchema(kind)).arrow_type == arrow
    assert column(kind, stored) == wanted
    assert column(kind, [None, *stored, None]) == [None, *wanted, None]
    assert column(kind, []) == []


@pytest.mark.parametrize(("kind", "stored", "wanted", "arrow"), PRIMITIVES, ids=[one[0] for one in PRIMITIVES])
def test_a_part_of_a_longer_array_gives_just_its_own_rows(
    kind: str, stored: list[bytes], wanted: list[Any], arrow: pa.DataType
) -> None:
    values = pa.array([b"before", None, *stored, None, b"behind"], pa.binary())[1:-1]
    converted = ValueReader(TopicSchema(kind)).convert(values, pa.nulls(len(values), pa.binary()), never)
    assert converted.values.to_pylist() == [None, *wanted, None]
    assert converted.problems == ()
    without_nulls = pa.array([stored[-1], *stored], pa.binary())[1:]
    converted = ValueReader(TopicSchema(kind)).convert(without_nulls, pa.nulls(len(stored), pa.binary()), never)
    assert converted.values.to_pylist() == wanted


@pytest.mark.parametrize("kind", [kind for kind, *_ in PRIMITIVES if kind not in ("STRING", "BYTES", "NONE")])
def test_a_value_of_another_size_is_a_problem_and_its_row_is_null(kind: str) -> None:
    [(stored, wanted)] = [(stored, wanted) for name, stored, wanted, _ in PRIMITIVES if name == kind]
    converted = convert(TopicSchema(kind), [stored[0], b"", None, stored[0] + b"\0", stored[0]])
    assert converted.values.to_pylist() == [wanted[0], None, None, None, wanted[0]]
    assert [(one.row, kind in one.problem) for one in converted.problems] == [(1, True), (3, True)]


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        ("TIMESTAMP", struct.pack(">q", MOST // 1_000 + 1)),
        ("DATE", struct.pack(">q", -(2**63))),
        ("INSTANT", struct.pack(">qi", MOST // 1_000_000 + 1, 0)),
        ("INSTANT", struct.pack(">qi", 0, 1_000_000_000)),
        ("INSTANT", struct.pack(">qi", 0, -1)),
        ("LOCAL_DATE", struct.pack(">q", 2**31)),
        ("LOCAL_TIME", struct.pack(">q", 86_400_000_000_000)),
        ("LOCAL_TIME", struct.pack(">q", -1)),
        ("LOCAL_DATE_TIME", struct.pack(">qq", MOST // 1_000, 0)),
        ("LOCAL_DATE_TIME", struct.pack(">qq", 0, 86_400_000_000_000)),
    ],
)
def test_a_time_that_a_column_cannot_hold_is_a_problem_and_never_another_time(kind: str, stored: bytes) -> None:
    [problem] = convert(TopicSchema(kind), [stored]).problems
    assert "a column cannot hold" in problem.problem
    assert stored.hex() in problem.problem


def test_bytes_that_are_no_text_become_replacement_characters_as_in_java() -> None:
    assert column("STRING", [b"a\xffb", None, b"\xf0\x9f", b"good"]) == ["a\ufffdb", None, "\ufffd", "good"]


@pytest.mark.parametrize(
    ("charset", "stored", "wanted"),
    [
        ("ISO-8859-1", b"gr\xfcn", "grün"),
        ("US-ASCII", b"a\xff", "a\ufffd"),
        ("UTF-16", b"\0a", "a"),
        ("UTF-16", b"\xff\xfea\0", "a"),
        ("UTF-16", b"\xfe\xff\0a", "a"),
        ("UTF-16LE", b"a\0", "a"),
        ("windows-1252", b"\x80", "€"),
        ("Shift_JIS", "日本".encode("shift-jis"), "日本"),
    ],
)
def test_text_is_read_in_the_charset_that_the_schema_names(charset: str, stored: bytes, wanted: str) -> None:
    assert column(topic_schema("STRING", b"", {"__charset": charset}), [stored, None]) == [wanted, None]


def test_a_charset_that_python_does_not_know_is_refused_before_anything_is_read() -> None:
    with pytest.raises(ConfigError, match=r"the charset.*schema=raw"):
        ValueReader(topic_schema("STRING", b"", {"__charset": "x-klingon"}))


@pytest.mark.parametrize("kind", ["PROTOBUF", "PROTOBUF_NATIVE", "AUTO_CONSUME", "AUTO_PUBLISH", "AUTO", "NEW"])
def test_a_type_without_a_column_is_refused_with_the_way_to_read_it(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"{kind}.*schema=raw"):
        ValueReader(TopicSchema(kind))


# Keys and values


def key_value(key: str, value: str, definitions: tuple[bytes, bytes] = (b"", b""), **more: str) -> TopicSchema:
    stored = b"".join(struct.pack(">i", len(one)) + one for one in definitions)
    return topic_schema("KEY_VALUE", stored, {"key.schema.type": key, "value.schema.type": value, **dotted(more)})


def dotted(properties: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in properties.items()}


def pair(key: bytes | None, value: bytes | None) -> bytes:
    return b"".join(struct.pack(">i", -1 if one is None else len(one)) + (one or b"") for one in (key, value))


PAIRS = st.tuples(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=20))


@given(pairs=st.lists(st.none() | PAIRS, max_size=20), skipped=st.integers(0, 3))
def test_an_inline_key_value_is_a_struct_of_both_also_where_one_is_null(
    pairs: list[tuple[bytes | None, bytes | None] | None], skipped: int
) -> None:
    reader = ValueReader(key_value("BYTES", "BYTES"))
    values = pa.array([None if one is None else pair(*one) for one in pairs], pa.binary())[skipped:]
    converted = reader.convert(values, pa.nulls(len(values), pa.binary()), never)
    assert converted.problems == ()
    assert converted.values.to_pylist() == [
        None if one is None else {"key": one[0], "value": one[1]} for one in pairs[skipped:]
    ]


def test_key_and_value_are_typed_each_by_its_own_schema() -> None:
    schema = key_value("INT32", "STRING", value_schema_properties='{"__charset": "ISO-8859-1"}')
    assert column(schema, [pair(b"\0\0\0\5", b"\xfc"), None]) == [{"key": 5, "value": "ü"}, None]


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\0\0\0",
        pair(b"k", b"v")[:-1],
        pair(b"k", b"v") + b"x",
        struct.pack(">i", -2) + pair(b"k", b"v"),
        struct.pack(">i", 2**31 - 1) + b"k",
        pair(b"k", None) + b"x",
        pair(b"k", b"")[:-2],
        struct.pack(">i", 1) + b"k" + struct.pack(">i", -2),
    ],
)
def test_a_key_value_whose_sizes_do_not_add_up_is_a_problem_and_its_neighbours_are_read(damaged: bytes) -> None:
    good = {"key": b"k", "value": b"v"}
    converted = convert(key_value("BYTES", "BYTES"), [pair(b"k", b"v"), damaged, pair(b"k", b"v")])
    assert converted.values.to_pylist() == [good, None, good]
    assert [one.row for one in converted.problems] == [1]


@given(values=st.lists(st.none() | st.binary(max_size=14), max_size=12))
def test_any_bytes_are_a_key_value_or_a_problem(values: list[bytes | None]) -> None:
    convert(key_value("BYTES", "BYTES"), values)


def test_a_key_or_a_value_that_does_not_fit_makes_its_whole_row_null() -> None:
    converted = convert(key_value("INT8", "INT8"), [pair(b"\1", b"\2"), pair(b"", b"\2"), pair(b"\1", b"22"), pair(b"", b"")])
    assert converted.values.to_pylist() == [{"key": 1, "value": 2}, None, None, None]
    assert [one.row for one in converted.problems] == [1, 2, 3]


def test_of_a_separated_key_value_the_column_has_the_value() -> None:
    schema = key_value("STRING", "INT16", kv_encoding_type="SEPARATED")
    assert ValueReader(schema).arrow_type == pa.int16()
    assert column(schema, [b"\0\1", None]) == [1, None]


# Versions


def test_each_value_is_read_with_the_schema_that_it_was_written_with() -> None:
    versions = {b"1": topic_schema("STRING", b"", {"__charset": "ISO-8859-1"}), b"2": TopicSchema("STRING")}
    values, given_versions = [b"\xfc", b"\xc3\xbc", None, b"\xfc", b"x"], [b"1", b"2", b"3", b"1", None]
    converted = convert(TopicSchema("STRING"), values, given_versions, versions.__getitem__)
    assert converted.values.to_pylist() == ["ü", "ü", None, "ü", "x"]


def test_each_version_is_looked_up_once_and_none_for_an_empty_one() -> None:
    asked: list[bytes] = []

    def schema_of(version: bytes) -> TopicSchema:
        asked.append(version)
        return TopicSchema("INT8")

    converted = convert(TopicSchema("INT8"), [b"\1", b"\2", b"\3", b"\4"], [b"a", b"", b"b", b"a"], schema_of)
    assert converted.values.to_pylist() == [1, 2, 3, 4]
    assert sorted(asked) == [b"a", b"b"]


def test_a_problem_keeps_its_row_among_values_of_several_versions() -> None:
    converted = convert(
        TopicSchema("INT8"), [b"\1", b"22", b"\3", b"44"], [b"a", b"b", b"b", b"a"], lambda _: TopicSchema("INT8")
    )
    assert converted.values.to_pylist() == [1, None, 3, None]
    assert [one.row for one in converted.problems] == [1, 3]


def test_a_value_whose_version_has_another_type_is_a_problem_that_names_both_types() -> None:
    converted = convert(TopicSchema("INT64"), [bytes(8), None, bytes(8)], [b"1", b"1", None], lambda _: TopicSchema("DOUBLE"))
    assert converted.values.to_pylist() == [None, None, 0]
    [problem] = converted.problems
    assert "DOUBLE" in problem.problem
    assert "INT64" in problem.problem


def test_values_that_are_bytes_are_read_whatever_they_were_written_with() -> None:
    converted = convert(TopicSchema("BYTES"), [b"x"], [b"1"], lambda _: TopicSchema("DOUBLE"))
    assert converted.values.to_pylist() == [b"x"]


def test_keys_and_values_are_read_with_the_versions_they_were_written_with() -> None:
    old = key_value("STRING", "INT8", key_schema_properties='{"__charset": "ISO-8859-1"}')
    new = key_value("STRING", "INT8")
    converted = convert(new, [pair(b"\xfc", b"\1"), pair(b"\xc3\xbc", b"\2")], [b"old", None], lambda _: old)
    assert converted.values.to_pylist() == [{"key": "ü", "value": 1}, {"key": "ü", "value": 2}]


def test_inline_values_of_a_topic_that_became_separated_are_problems() -> None:
    separated, inline = key_value("INT8", "INT8", kv_encoding_type="SEPARATED"), key_value("INT8", "INT8")
    [problem] = convert(separated, [pair(b"\1", b"\1")], [b"1"], lambda _: inline).problems
    assert "separated" in problem.problem


def test_what_the_look_up_of_a_version_raises_reaches_the_caller() -> None:
    def schema_of(version: bytes) -> TopicSchema:
        raise ConfigError("schema version", version.hex(), "it is gone")

    with pytest.raises(ConfigError, match="it is gone"):
        convert(TopicSchema("INT8"), [b"\1"], [b"1"], schema_of)


def test_a_reader_can_be_sent_to_another_process() -> None:
    schema = key_value("INT8", "JSON", (b"", b'{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'))
    reader = pickle.loads(pickle.dumps(ValueReader(schema)))
    converted = reader.convert(pa.array([pair(b"\1", b'{"a": 2}')]), pa.nulls(1, pa.binary()), never)
    assert converted.values.to_pylist() == [{"key": 1, "value": {"a": 2}}]
