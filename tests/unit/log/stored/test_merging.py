"""Which types of a log's column and of a DataFrame's go together with ``mergeSchema``, and what the column becomes."""

from __future__ import annotations

from itertools import product

import pytest

from bk_spark.log.stored.merging import ApartTypes, ClashingNames, merged

SIMPLE = ["boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date", "timestamp"]
SIMPLE += ["timestamp_ntz", "time(6)", "void", "variant", "interval day to second", "interval day", "char(5)", "varchar(5)"]
DECIMALS = ["decimal(2,0)", "decimal(3,0)", "decimal(5,0)", "decimal(7,2)", "decimal(10,0)", "decimal(12,2)", "decimal(12,4)"]
DECIMALS += [
    "decimal(18,0)",
    "decimal(19,0)",
    "decimal(20,0)",
    "decimal(21,2)",
    "decimal(38,0)",
    "decimal(38,18)",
    "decimal(38,38)",
]
TYPES = SIMPLE + DECIMALS

WIDER = {
    "byte": "short integer long double decimal(3,0) decimal(5,0) decimal(7,2) decimal(10,0) decimal(12,2) decimal(12,4) "
    "decimal(18,0) decimal(19,0) decimal(20,0) decimal(21,2) decimal(38,0) decimal(38,18)",
    "short": "integer long double decimal(5,0) decimal(7,2) decimal(10,0) decimal(12,2) decimal(12,4) "
    "decimal(18,0) decimal(19,0) decimal(20,0) decimal(21,2) decimal(38,0) decimal(38,18)",
    "integer": "long double decimal(10,0) decimal(12,2) decimal(18,0) decimal(19,0) decimal(20,0) decimal(21,2) decimal(38,0) "
    "decimal(38,18)",
    "long": "decimal(19,0) decimal(20,0) decimal(21,2) decimal(38,0) decimal(38,18)",
    "float": "double",
    "date": "timestamp_ntz",
    "decimal(2,0)": "decimal(3,0) decimal(5,0) decimal(7,2) decimal(10,0) decimal(12,2) decimal(12,4) decimal(18,0) "
    "decimal(19,0) decimal(20,0) decimal(21,2) decimal(38,0) decimal(38,18)",
    "decimal(3,0)": "decimal(5,0) decimal(7,2) decimal(10,0) decimal(12,2) decimal(12,4) decimal(18,0) decimal(19,0) "
    "decimal(20,0) decimal(21,2) decimal(38,0) decimal(38,18)",
    "decimal(5,0)": "decimal(7,2) decimal(10,0) decimal(12,2) decimal(12,4) decimal(18,0) decimal(19,0) decimal(20,0) "
    "decimal(21,2) decimal(38,0) decimal(38,18)",
    "decimal(7,2)": "decimal(12,2) decimal(12,4) decimal(21,2) decimal(38,18)",
    "decimal(10,0)": "decimal(12,2) decimal(18,0) decimal(19,0) decimal(20,0) decimal(21,2) decimal(38,0) decimal(38,18)",
    "decimal(12,2)": "decimal(21,2) decimal(38,18)",
    "decimal(12,4)": "decimal(38,18)",
    "decimal(18,0)": "decimal(19,0) decimal(20,0) decimal(21,2) decimal(38,0) decimal(38,18)",
    "decimal(19,0)": "decimal(20,0) decimal(21,2) decimal(38,0) decimal(38,18)",
    "decimal(20,0)": "decimal(38,0) decimal(38,18)",
    "decimal(21,2)": "decimal(38,18)",
}
"""Type → all other types that hold each of its values, besides void, which all of them hold. What is not here is refused."""


def struct(**fields):
    return {"type": "struct", "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in fields.items()]}


def array(element):
    return {"type": "array", "elementType": element, "containsNull": True}


def mapping(key, value):
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


def wider(kind):
    return TYPES if kind == "void" else WIDER.get(kind, "").split()


def outcome(stored, given):
    try:
        return merged(stored, given)
    except ApartTypes:
        return None


@pytest.mark.parametrize("stored", TYPES)
def test_the_type_that_holds_both_is_the_log_s_whichever_came_first_and_all_others_are_refused(stored: str) -> None:
    expected: dict[str, str | None] = {}
    for given in TYPES:
        holds_both = [kind for kind in (stored, given) if all(one == kind or kind in wider(one) for one in (stored, given))]
        expected[given] = holds_both[0] if holds_both else None
    assert {given: outcome(stored, given) for given in TYPES} == expected


def test_what_is_wider_than_a_wider_type_is_wider_too() -> None:
    """A payload is read as the log's type of today, whatever it was between."""
    for one, two, three in product(TYPES, repeat=3):
        if outcome(one, two) == two and outcome(two, three) == three:
            assert outcome(one, three) == three, (one, two, three)


def test_structs_are_merged_by_name_and_new_fields_go_to_the_end() -> None:
    stored, given = struct(a="integer", b="double", c="date"), struct(new="string", b="float", a="long")
    assert merged(stored, given) == struct(a="long", b="double", c="date", new="string")


@pytest.mark.parametrize("kind", [array("long"), mapping("string", "date"), struct(a="long"), {"type": "udt", "class": "A"}])
def test_void_becomes_a_nested_type_too_and_at_every_depth(kind) -> None:
    for made in (lambda inner: inner, array, lambda inner: struct(a=inner), lambda inner: mapping("string", array(inner))):
        assert merged(made("void"), made(kind)) == merged(made(kind), made("void")) == made(kind)


def test_elements_values_and_what_they_hold_are_merged() -> None:
    stored, given = array(mapping("string", struct(x="byte"))), array(mapping("string", struct(x="short", y="date")))
    assert merged(stored, given) == given
    assert merged(given, stored) == given


@pytest.mark.parametrize(
    ("stored", "given", "place"),
    [
        (mapping("integer", "date"), mapping("long", "date"), ""),
        (mapping(struct(a="date"), "date"), mapping(struct(a="date", b="date"), "date"), ""),
        (array("integer"), array("string"), ".element"),
        (mapping("string", array("long")), mapping("string", array("double")), ".value.element"),
        (struct(a=struct(b="long")), struct(a=struct(b="string")), ".a.b"),
        (struct(a="long"), "long", ""),
        (array("long"), "long", ""),
        ({"type": "udt", "class": "A", "sqlType": "integer"}, {"type": "udt", "class": "A", "sqlType": "long"}, ""),
    ],
)
def test_types_that_are_apart_are_named_with_their_place(stored, given, place) -> None:
    for one, other in ((stored, given), (given, stored)):
        with pytest.raises(ApartTypes) as apart:
            merged(one, other)
        assert apart.value.place == place


def test_a_new_field_whose_name_differs_in_case_only_is_refused() -> None:
    with pytest.raises(ClashingNames) as clash:
        merged(struct(s=struct(a="long")), struct(s=struct(A="long")))
    assert clash.value.names == "'s.a' and 's.A'"


def test_names_that_a_struct_of_the_log_has_already_are_left_as_they_are() -> None:
    stored = struct(a="integer", A="integer")
    assert merged(stored, struct(a="long", A="integer")) == struct(a="long", A="integer")
