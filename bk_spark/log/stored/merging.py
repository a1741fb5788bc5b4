"""What a log's type becomes when data of another type is appended with ``mergeSchema``. Types are Spark's JSON.

One of the two types must hold every value of the other exactly; the log keeps or gets that one:

====================== ===========================================================
type                   holds every value of
====================== ===========================================================
short, integer, long   the shorter ones of byte, short, integer
double                 float; byte, short, integer
decimal(p, s)          decimal(p', s') with p - s ≥ p' - s' and s ≥ s'; byte, short, integer, long where p - s is at least
                       3, 5, 10, 19
timestamp_ntz          date, as its midnight
every type             void, whose only value is null
====================== ===========================================================

Structs are merged field by field, by name. New fields go to the end. Elements of arrays and values of maps are merged likewise.
Keys of maps stay: two keys must not become one. Payloads keep the type that they were written with, so a reader must be able
to read each of these as the other: rows/widening.py has the same rule for Arrow's types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_INTEGER_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
"""The decimal digits that hold every value. A later type of the four holds every value of an earlier one."""
_INTEGERS = tuple(_INTEGER_DIGITS)
VOID = "void"
"""The type of a column of which nothing but nulls is known."""
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")


class ApartTypes(Exception):
    """Two types of which neither holds the values of the other. ``place`` is empty, or like ``.field.element``."""

    def __init__(self, place: str, stored: Any, given: Any) -> None:
        super().__init__(place, stored, given)
        self.place = place
        self.stored = stored
        self.given = given


class ClashingNames(Exception):
    """Two fields of one struct whose names differ only in case. ``place`` is that of the struct."""

    def __init__(self, place: str, one: str, other: str) -> None:
        super().__init__(place, one, other)
        self.names = " and ".join(f"'{(f'{place}.{name}')[1:]}'" for name in (one, other))


def merged(stored: Any, given: Any, place: str = "") -> Any:
    """The type that holds the values of both, with the metadata of ``stored``. Raises ApartTypes, ClashingNames."""
    if bare(stored) == bare(given):
        return stored
    if isinstance(stored, dict) and isinstance(given, dict) and stored["type"] == given["type"]:
        if stored["type"] == "struct":
            return {**stored, "fields": merged_fields(stored["fields"], given["fields"], place)}
        if stored["type"] == "array":
            return {**stored, "elementType": merged(stored["elementType"], given["elementType"], f"{place}.element")}
        if stored["type"] == "map" and bare(stored["keyType"]) == bare(given["keyType"]):
            return {**stored, "valueType": merged(stored["valueType"], given["valueType"], f"{place}.value")}
    if is_wider(given, stored):
        return given
    if is_wider(stored, given):
        return stored
    raise ApartTypes(place, stored, given)


def filled(given: Any, stored: Any) -> Any:
    """``given`` with the types of ``stored`` in place of void, at any depth: a null goes with every type."""
    if given == VOID:
        return stored
    if not isinstance(given, dict) or not isinstance(stored, dict) or given["type"] != stored["type"]:
        return given
    if given["type"] == "struct":
        here = {field["name"]: field["type"] for field in stored["fields"]}
        fields = [{**field, "type": filled(field["type"], here.get(field["name"], field["type"]))} for field in given["fields"]]
        return {**given, "fields": fields}
    return {**given, **{name: filled(given[name], stored[name]) for name in ("elementType", "valueType") if name in given}}


def merged_fields(stored: list[Any], given: list[Any], place: str) -> list[Any]:
    """The fields of ``stored``, then those that only ``given`` has."""
    incoming = {field["name"]: field for field in given}
    fields = [
        {**field, "type": merged(field["type"], incoming[field["name"]]["type"], f"{place}.{field['name']}")}
        if field["name"] in incoming
        else field
        for field in stored
    ]
    known = {field["name"] for field in stored}
    added = [field for field in given if field["name"] not in known]
    clash = clashing([*(field["name"] for field in stored), *(field["name"] for field in added)]) if added else None
    if clash:
        raise ClashingNames(place, *clash)
    return fields + added


def dates_as_timestamps(given: Any, stored: Any, place: str) -> Iterator[str]:
    """Where ``given`` has dates that are read as timestamps of ``stored``, which holds its values: ``visits.element.day``."""
    if (stored, given) == ("timestamp_ntz", "date"):
        yield place
    elif isinstance(given, dict) and isinstance(stored, dict) and given["type"] == stored["type"]:
        here = {field["name"]: field["type"] for field in stored.get("fields", ())}
        for field in given.get("fields", ()):
            yield from dates_as_timestamps(field["type"], here.get(field["name"]), f"{place}.{field['name']}")
        for inner, name in (("elementType", "element"), ("valueType", "value")):
            if inner in given:
                yield from dates_as_timestamps(given[inner], stored[inner], f"{place}.{name}")


def is_wider(wide: Any, narrow: Any) -> bool:
    """Whether ``wide``, another type, holds every value of ``narrow``, which is void or, like ``wide``, a simple type."""
    if narrow == VOID:
        return True
    if not isinstance(wide, str) or not isinstance(narrow, str):
        return False
    if to := _DECIMAL.fullmatch(wide):
        precision, scale = int(to[1]), int(to[2])
        if of := _DECIMAL.fullmatch(narrow):
            return precision - scale >= int(of[1]) - int(of[2]) and scale >= int(of[2])
        return narrow in _INTEGER_DIGITS and precision - scale >= _INTEGER_DIGITS[narrow]
    if wide in _INTEGER_DIGITS and narrow in _INTEGER_DIGITS:
        return _INTEGERS.index(wide) > _INTEGERS.index(narrow)
    if wide == "double":
        return narrow in ("byte", "short", "integer", "float")
    return (wide, narrow) == ("timestamp_ntz", "date")


def bare(kind: Any) -> Any:
    """The type without the metadata of its nested fields."""
    if isinstance(kind, dict):
        return {key: bare(value) for key, value in kind.items() if key != "metadata"}
    return [bare(one) for one in kind] if isinstance(kind, list) else kind


def clashing(names: list[str]) -> tuple[str, str] | None:
    """Two names that are equal or differ only in case: Spark resolves columns without regard to case."""
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            return seen[name.lower()], name
        seen[name.lower()] = name
    return None
