"""Typed values: what the messages of typed topics are as values, from what java/Forms.java wrote."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

SHOWN = 3


def unlike_values(topic: str, typed: pa.Table, raw: pa.Table) -> list[str]:
    """One sentence if a value is not what its bytes mean. Both tables have the same messages."""
    meaning = MEANINGS[topic.rsplit("/", 1)[1]]
    found = typed.column("value").to_pylist()
    wanted = [meaning(row) for row in raw.select(["key", "value"]).to_pylist()]
    other = [(one, two) for one, two in zip(wanted, found, strict=True) if one != two]
    return [f"{topic}: {len(other)} values differ, such as {other[:SHOWN]} (wanted, found)"] if other else []


def _avro(row: Mapping[str, Any]) -> Any:
    """The id comes first in both versions, in zigzag; names and prices follow from it. The first version has no price."""
    number, shift = 0, 0
    for byte in row["value"]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    number >>= 1
    price = None if number % 2 == 0 or number % 3 == 0 else number / 7
    return {"id": number, "name": None if number % 4 == 0 else f"name {number}", "price": price}


def _inline(row: Mapping[str, Any]) -> Any:
    """Both parts stand behind their sizes."""
    (size,) = struct.unpack_from(">i", row["value"])
    return {"key": row["value"][4 : 4 + size].decode(), "value": struct.unpack(">i", row["value"][8 + size :])[0]}


MEANINGS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "typed-int32": lambda row: struct.unpack(">i", row["value"])[0],
    "typed-string": lambda row: row["value"].decode(),
    "typed-json": lambda row: {"name": None, **json.loads(row["value"])},
    "typed-avro": _avro,
    "typed-inline": _inline,
}
