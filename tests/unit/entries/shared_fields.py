"""A schema message whose fields share their children: each level doubles the fields that it stands for."""

from __future__ import annotations

import struct

_NULL, _STRUCT = 1, 13


def schema_of_shared_fields(levels: int, padding: int = 0) -> bytes:
    """A column with ``2**levels`` fields at its last level. Arrow takes eight a byte of the message, so ``padding``."""
    made = _Flatbuffer()
    message = made.table("<hBxI4xq", (4, 6, 8, 16), 4, 1, 0, 0)
    made.refer(0, message)
    schema = made.table("<I", (0, 4), 0)
    made.refer(message + 8, schema)
    waiting, names, types = [schema + 4], [], []
    for level in range(levels + 1):
        vector, count = made.aligned(4), 2 if level else 1
        for place in waiting:
            made.refer(place, vector)
        made.data += struct.pack("<I", count) + bytes(4 * count)
        kind = _NULL if level == levels else _STRUCT
        field = made.table("<IIIBBxx", (4, 16, 17, 8, 0, 12), 0, 0, 0, 1, kind)
        for slot in range(count):
            made.refer(vector + 4 * (slot + 1), field)
        names.append(field + 4)
        types.append(field + 8)
        waiting = [field + 12]
    _refer_all(made, waiting, struct.pack("<I", 0))
    _refer_all(made, names, struct.pack("<I", 1) + b"a\0\0\0")
    kind_table = made.table("", ())
    for place in types:
        made.refer(place, kind_table)
    made.data += bytes(padding)
    made.aligned(8)
    return bytes(made.data)


def _refer_all(made: _Flatbuffer, places: list[int], data: bytes) -> None:
    start = made.aligned(4)
    made.data += data
    for place in places:
        made.refer(place, start)


class _Flatbuffer:
    def __init__(self) -> None:
        self.data = bytearray(4)

    def aligned(self, size: int) -> int:
        self.data += bytes(-len(self.data) % size)
        return len(self.data)

    def refer(self, place: int, target: int) -> None:
        struct.pack_into("<I", self.data, place, target - place)

    def table(self, form: str, fields: tuple[int, ...], *values: int) -> int:
        """A table with ``values`` laid out as ``form`` behind the offset of its vtable, where ``fields`` says each field is."""
        vtable = self.aligned(8)
        self.data += struct.pack(f"<HH{len(fields)}H", 4 + 2 * len(fields), 4 + struct.calcsize(form), *fields)
        start = self.aligned(8)
        self.data += struct.pack("<i", start - vtable) + struct.pack(form, *values)
        return start
