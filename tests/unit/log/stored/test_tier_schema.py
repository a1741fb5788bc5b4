"""Which changes of a log's schema the table of its tier can follow."""

from __future__ import annotations

from typing import Any

import pytest

from bk_spark.errors import SchemaMismatchError
from bk_spark.log.stored.tier_mark import TierMark
from bk_spark.log.stored.tier_schema import check_tier_follows
from bk_spark.log.stored.values import Head

TIERED = Head("orders", tier=TierMark())


def schema(kind: Any, name: str = "x") -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}}]}


def array(of: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": of, "containsNull": True}


def mapping(of: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": "string", "valueType": of, "valueContainsNull": True}


FOLLOWED = [
    ("byte", "long"),
    ("long", "short"),
    ("float", "double"),
    ("decimal(5,2)", "decimal(9,2)"),
    ("void", "string"),
    ("string", "void"),
    (array("integer"), array("long")),
    (mapping("float"), mapping("double")),
    (schema("byte"), schema("integer")),
    (schema("byte"), schema("string", "y")),
    ("string", "string collate UTF8_LCASE"),
]
NOT_FOLLOWED = [
    ("integer", "double"),
    ("integer", "decimal(10,0)"),
    ("decimal(5,2)", "decimal(9,4)"),
    ("date", "timestamp_ntz"),
    ("string", "binary"),
    ("timestamp", "timestamp_ntz"),
    (array("integer"), array("double")),
    (array("integer"), "integer"),
    (schema("byte"), schema("string")),
    (mapping(array("integer")), mapping(array("string"))),
]
LACKING = ["interval day to second", "variant", "geometry(4326)", array("void"), mapping(schema("variant")), schema("void")]


@pytest.mark.parametrize(("before", "after"), FOLLOWED, ids=str)
def test_what_iceberg_can_widen_is_followed_and_so_is_what_is_narrower(before: Any, after: Any) -> None:
    check_tier_follows(TIERED, schema(before), schema(after))


@pytest.mark.parametrize(("before", "after"), NOT_FOLLOWED, ids=str)
def test_what_would_be_another_column_is_refused_with_both_types(before: Any, after: Any) -> None:
    with pytest.raises(SchemaMismatchError, match=r"column 'x' is .* in the log and would be .*: cast it"):
        check_tier_follows(TIERED, schema(before), schema(after))
    check_tier_follows(Head("orders"), schema(before), schema(after))
    check_tier_follows(TIERED, schema(before, "y"), schema(after))


@pytest.mark.parametrize("kind", LACKING, ids=str)
def test_a_new_column_of_a_type_that_iceberg_lacks_is_refused(kind: Any) -> None:
    with pytest.raises(SchemaMismatchError, match=r"column 'x' has the type .*, which the table of its tier cannot hold"):
        check_tier_follows(TIERED, None, schema(kind))


@pytest.mark.parametrize("name", ["_row", "_ledger_id", ""])
def test_a_column_with_the_name_of_a_place_is_refused(name: str) -> None:
    with pytest.raises(SchemaMismatchError, match="cannot have a column of the name"):
        check_tier_follows(TIERED, None, schema("long", name))
