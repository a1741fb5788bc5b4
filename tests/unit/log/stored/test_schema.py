from __future__ import annotations

import json

import pytest

from bk_spark.errors import ConfigError, SchemaMismatchError
from bk_spark.log.stored.schema import appended_schema, parse_schema, timestamps_of_dates, type_name


def struct(*columns, nullable=True):
    return {"type": "struct", "fields": [{"name": n, "type": t, "nullable": nullable, "metadata": {}} for n, t in columns]}


def array(element, nullable=True):
    return {"type": "array", "elementType": element, "containsNull": nullable}


def mapping(key, value, nullable=True):
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": nullable}


def names(schema):
    return [column["name"] for column in schema["fields"]]


STORED = struct(("id", "long"), ("name", "string"))


def test_every_column_becomes_nullable_nested_ones_too():
    strict = struct(
        ("a", "long"),
        ("s", struct(("x", "date"), nullable=False)),
        ("l", array(struct(("y", "long"), nullable=False), nullable=False)),
        ("m", mapping("string", array("long", nullable=False), nullable=False)),
        nullable=False,
    )
    loose = struct(
        ("a", "long"),
        ("s", struct(("x", "date"))),
        ("l", array(struct(("y", "long")))),
        ("m", mapping("string", array("long"))),
    )
    assert parse_schema("orders", json.dumps(strict)) == loose


@pytest.mark.parametrize("wrong", ["", "7", "[]", '"long"', "{}", '{"type":"struct"}', '{"type":"struct","fields":[{}]}'])
def test_what_is_no_schema_is_refused(wrong):
    with pytest.raises(ConfigError, match=r"the schema given for log 'orders' is .*StructType"):
        parse_schema("orders", wrong)


def test_columns_that_differ_in_case_only_are_refused():
    with pytest.raises(ConfigError, match="'id' and 'ID'"):
        parse_schema("orders", json.dumps(struct(("id", "long"), ("ID", "long"))))


def test_an_append_matches_by_name_in_any_order():
    given = struct(("name", "string"), ("id", "long"))
    assert appended_schema("orders", STORED, given, merge=False) == STORED


def test_an_append_may_lack_a_column_which_is_then_null():
    assert appended_schema("orders", STORED, struct(("id", "long")), merge=False) == STORED


def test_an_extra_column_is_refused_with_its_type_and_the_log_s():
    given = struct(("id", "long"), ("extra", array("integer")))
    with pytest.raises(SchemaMismatchError, match=r"'extra' \(array<int>\).*struct<id:bigint,name:string>.*mergeSchema"):
        appended_schema("orders", STORED, given, merge=False)


def test_another_type_is_refused_with_both_types_named_also_when_merging():
    given = struct(("id", "string"))
    for merge in (False, True):
        with pytest.raises(SchemaMismatchError, match=r"column 'id' is bigint in the log and string in the data: cast it$"):
            appended_schema("orders", STORED, given, merge=merge)


@pytest.mark.parametrize("given", ["integer", "decimal(20,0)"])
def test_a_narrower_or_wider_type_without_merging_names_the_option(given):
    with pytest.raises(
        SchemaMismatchError, match=r"column 'id' is bigint in the log and (int|decimal\(20,0\)) .*'mergeSchema'"
    ):
        appended_schema("orders", STORED, struct(("id", given)), merge=False)


@pytest.mark.parametrize(
    "kind", ["long", array("long"), mapping("string", array("date")), struct(("x", "long"), ("y", "date"))]
)
def test_void_goes_with_every_type_at_every_depth_without_merging_and_the_type_stays(kind):
    for made in (lambda inner: inner, array, lambda inner: mapping("string", inner), lambda inner: struct(("s", inner))):
        stored, given = (struct(("c", made(one))) for one in (kind, "void"))
        assert appended_schema("orders", stored, given, merge=False) == stored


def test_a_column_that_was_void_so_far_takes_a_type_by_merging_alone():
    void, typed = (struct(("s", struct(("x", kind)))) for kind in ("void", "long"))
    assert appended_schema("orders", void, typed, merge=True) == typed
    with pytest.raises(SchemaMismatchError, match=r"struct<x:void> in the log and struct<x:bigint> .*'mergeSchema'"):
        appended_schema("orders", void, typed, merge=False)


def test_a_field_that_a_struct_gained_or_lacks_without_merging_names_the_option():
    less, more = (struct(("s", struct(*fields))) for fields in ([("a", "integer")], [("a", "integer"), ("b", "date")]))
    with pytest.raises(SchemaMismatchError, match=r"struct<a:int> in the log and struct<a:int,b:date> .*'mergeSchema'"):
        appended_schema("orders", less, more, merge=False)
    with pytest.raises(SchemaMismatchError, match=r"struct<a:int,b:date> in the log and struct<a:int> .*'mergeSchema'"):
        appended_schema("orders", more, less, merge=False)


def test_another_nested_type_is_refused_with_its_place():
    stored, given = (struct(("s", array(struct(("a", kind))))) for kind in ("integer", "string"))
    with pytest.raises(SchemaMismatchError, match=r"column 's\.element\.a' is int in the log and string in the data: cast it"):
        appended_schema("orders", stored, given, merge=True)


def test_merging_keeps_the_schema_for_narrower_data_and_widens_it_for_wider_data():
    narrower, wider = struct(("id", "integer")), struct(("id", "decimal(20,0)"))
    assert appended_schema("orders", STORED, narrower, merge=True) == STORED
    assert appended_schema("orders", STORED, wider, merge=True) == struct(("id", "decimal(20,0)"), ("name", "string"))


def test_merging_keeps_the_comments_of_the_log_s_columns():
    stored = struct(("id", "integer"))
    stored["fields"][0]["metadata"] = {"comment": "a number"}
    [column] = appended_schema("orders", stored, struct(("id", "long")), merge=True)["fields"]
    assert (column["type"], column["metadata"]) == ("long", {"comment": "a number"})


def test_merging_adds_columns_at_the_end_and_keeps_the_others():
    given = struct(("new", "date"), ("id", "long"))
    assert names(appended_schema("orders", STORED, given, merge=True)) == ["id", "name", "new"]


def test_a_column_that_differs_in_case_only_is_refused():
    for merge in (False, True):
        with pytest.raises(SchemaMismatchError, match="'id' and 'Id'"):
            appended_schema("orders", STORED, struct(("Id", "long")), merge=merge)


def test_metadata_of_columns_is_not_compared():
    given = struct(("id", "long"), ("s", struct(("a", "long"))))
    stored = json.loads(json.dumps(given))
    given["fields"][1]["type"]["fields"][0]["metadata"] = {"comment": "an a"}
    assert appended_schema("orders", stored, given, merge=False) == stored


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("long", "bigint"),
        ("short", "smallint"),
        ("byte", "tinyint"),
        ("decimal(10,2)", "decimal(10,2)"),
        ("timestamp_ntz", "timestamp_ntz"),
        (mapping("string", array(struct(("a", "integer"), ("b", "date")))), "map<string,array<struct<a:int,b:date>>>"),
        ({"type": "udt", "sqlType": array("double")}, "udt<array<double>>"),
    ],
)
def test_types_are_named_as_spark_sql_spells_them(kind, name):
    assert type_name(kind) == name


def test_dates_that_the_log_has_as_timestamps_are_known_by_their_places() -> None:
    def inside(kind: str) -> dict:
        fields = [{"name": "day", "type": kind, "nullable": True, "metadata": {}}]
        rows = {"type": "array", "elementType": {"type": "struct", "fields": fields}, "containsNull": True}
        return {"type": "map", "keyType": "string", "valueType": rows, "valueContainsNull": True}

    def columns(**kinds) -> dict:
        fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
        return {"type": "struct", "fields": fields}

    given = columns(a="date", b=inside("date"), c="date", new="date", d="integer")
    log = columns(a="timestamp_ntz", b=inside("timestamp_ntz"), c="date", d="long")
    appended = appended_schema("orders", log, given, merge=True)
    assert timestamps_of_dates(given, appended) == {"a", "b.value.element.day"}
    assert timestamps_of_dates(log, appended) == frozenset()
