"""NOT NULL over data whose columns are all nullable: the first place with a null, and the same values as the type asked for."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bk_spark.rows.not_null import declared, null_place

INT, NOT_NULL_INT = pa.field("a", pa.int32()), pa.field("a", pa.int32(), False)
ELEMENT, NOT_NULL_ELEMENT = (pa.field("element", pa.int32(), nullable) for nullable in (True, False))
CASES = [
    (INT, NOT_NULL_INT, [1, 2], [1, None], "a"),
    (
        pa.field("s", pa.struct([INT])),
        pa.field("s", pa.struct([NOT_NULL_INT])),
        [{"a": 1}, None],
        [None, {"a": 1}, {"a": None}],
        "s.a",
    ),
    (
        pa.field("l", pa.list_(ELEMENT)),
        pa.field("l", pa.list_(NOT_NULL_ELEMENT)),
        [[1], None, []],
        [None, [1], [2, None]],
        "l.element",
    ),
    (
        pa.field("m", pa.map_(pa.string(), pa.struct([INT]))),
        pa.field("m", pa.map_(pa.string(), pa.struct([NOT_NULL_INT]))),
        [[("k", {"a": 1})], None, [("k", None)]],
        [[("k", {"a": 1})], [("k", {"a": None})]],
        "m.value.a",
    ),
    (
        pa.field("m", pa.map_(pa.struct([INT]), pa.int32())),
        pa.field("m", pa.map_(pa.field("key", pa.struct([NOT_NULL_INT]), False), pa.int32())),
        [[({"a": 1}, None)]],
        [[({"a": None}, 1)]],
        "m.key.a",
    ),
    (
        pa.field("d", pa.list_(pa.field("element", pa.struct([pa.field("x", pa.list_(ELEMENT))])))),
        pa.field("d", pa.list_(pa.field("element", pa.struct([pa.field("x", pa.list_(NOT_NULL_ELEMENT), False)])))),
        [[{"x": [1]}, None]],
        [[{"x": [1]}], [{"x": None}]],
        "d.element.x",
    ),
]


@pytest.mark.parametrize(("stored", "asked", "whole", "with_null", "place"), CASES, ids=[case[4] for case in CASES])
def test_a_null_is_found_at_its_place_and_values_without_one_are_given_as_declared(
    stored, asked, whole, with_null, place
) -> None:
    for padding in (0, 1, 2):  # slices: the values of a batch need not begin at its buffers' first byte
        column = pa.array([*whole[:1] * padding, *with_null], stored.type).slice(padding)
        assert null_place(column, asked) == place
        assert null_place(column, stored) is None
        good = pa.array([*with_null, *whole], stored.type).slice(len(with_null))
        assert null_place(good, asked) is None
        given = declared(pa.record_batch([good], schema=pa.schema([stored])), pa.schema([asked]))
        assert given.schema == pa.schema([asked])
        assert given.column(0).to_pylist() == whole
        given.validate(full=True)


def test_what_lies_under_a_null_is_no_null_of_its_own() -> None:
    under = pa.StructArray.from_arrays([pa.array([1, None], pa.int32())], fields=[INT], mask=pa.array([False, True]))
    assert null_place(under, pa.field("s", pa.struct([NOT_NULL_INT]))) is None
    elements, mask = pa.array([1, None], pa.int32()), pa.array([False, True])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), elements, type=pa.list_(ELEMENT), mask=mask)
    assert null_place(lists, pa.field("l", pa.list_(NOT_NULL_ELEMENT))) is None
