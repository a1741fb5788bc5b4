"""Whether the table of a log's tier can follow a change of the log's schema. Both schemas are Spark's JSON.

A table has byte, short and integer as int, and can widen int to long, float to double, and a decimal to more digits before the
point. Rows of a narrower type go into a wider column. All else would be another column to Iceberg, so the log refuses it: what
is tiered already could not be read with what comes then.

Ref: the Iceberg specification, "Schema Evolution"; ``bk_spark/lake/columns.py``.
"""

from __future__ import annotations

import re
from typing import Any

from bk_spark.errors import SchemaMismatchError
from bk_spark.log.stored.merging import VOID, bare
from bk_spark.log.stored.schema import Schema, type_name
from bk_spark.log.stored.tier_columns import PLACE
from bk_spark.log.stored.values import Head

_FAMILIES = (("byte", "short", "integer", "long"), ("float", "double"))
"""Types that one column of a table can have one after the other."""
_DECIMAL = re.compile(r"decimal\(\d+,\s*(-?\d+)\)")
_LACKING = re.compile(r"interval|variant|geometry|geography")
"""Types that Iceberg's format 2 does not have."""


def check_tier_follows(head: Head, before: Schema | None, after: Schema) -> None:
    """``before`` is the schema of the newest version. Raises SchemaMismatchError. Nothing is asked of a log without a tier."""
    if head.tier is None:
        return
    here = {column["name"]: column["type"] for column in before["fields"]} if before else {}
    for column in after["fields"]:
        name, kind = column["name"], column["type"]
        if name in PLACE or not name:
            raise SchemaMismatchError(head.name, f"the table of its tier cannot have a column of the name '{name}': rename it")
        lacking = None if kind == VOID else _lacking(kind)
        if lacking is not None:
            problem = f"column '{name}' has the type {type_name(lacking)}, which the table of its tier cannot hold"
            raise SchemaMismatchError(head.name, f"{problem}: cast it, or leave it out")
        if name in here and not _follows(here[name], kind):
            problem = f"column '{name}' is {type_name(here[name])} in the log and would be {type_name(kind)}"
            raise SchemaMismatchError(head.name, f"{problem}, which the table of its tier cannot follow: cast it")


def _lacking(kind: Any) -> Any:
    """The first type in it that a table lacks."""
    if isinstance(kind, str):
        return kind if kind == VOID or _LACKING.match(kind) else None
    inner = [field["type"] for field in kind.get("fields", ())]
    inner += [kind[name] for name in ("elementType", "keyType", "valueType", "sqlType") if name in kind]
    return next((found for found in map(_lacking, inner) if found is not None), None)


def _follows(before: Any, after: Any) -> bool:
    if VOID in (before, after) or bare(before) == bare(after):
        return True
    if isinstance(before, str) and isinstance(after, str):
        scales = [found[1] for found in (_DECIMAL.fullmatch(one) for one in (before, after)) if found is not None]
        if len(scales) == 2:
            return scales[0] == scales[1]
        return any(before in family and after in family for family in _FAMILIES) or _text_or_time(before, after)
    if isinstance(before, str) or isinstance(after, str) or before["type"] != after["type"]:
        return False
    if before["type"] == "struct":
        here = {field["name"]: field["type"] for field in before["fields"]}
        return all(_follows(here[field["name"]], field["type"]) for field in after["fields"] if field["name"] in here)
    return all(_follows(before[name], after[name]) for name in ("elementType", "valueType") if name in before)


def _text_or_time(before: str, after: str) -> bool:
    """Collations and digits of seconds change no type of a table."""
    return any(before.startswith(kind) and after.startswith(kind) for kind in ("string", "time("))
