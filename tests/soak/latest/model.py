"""What a log with keys holds, as a list of rows, and what the newest row of each key is: a dictionary."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tests.soak.latest.conditions import Row, Where
from tests.soak.latest.keys import KeyColumn, drawn_key, same_key

VALUES = {"n": pa.int64(), "amount": pa.int64(), "note": pa.string(), "gone": pa.bool_()}
"""The columns that are no key; ``n`` is a number that no other row has, and later rows have larger ones."""


@dataclass
class Model:
    """The rows of a log's newest version."""

    key: tuple[KeyColumn, ...] = ()
    rows: dict[int, Row] = field(default_factory=dict)
    """By ``n``, in their order. Never changed in place: old versions keep theirs."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*((one.name, one.type) for one in self.key), *VALUES.items()])

    def drawn(self, chance: random.Random, first: int, count: int) -> list[Row]:
        return [
            {one.name: one.drawn(chance) for one in self.key}
            | {
                "n": first + place,
                "amount": chance.choice((None, *range(10))),
                "note": chance.choice((None, "x", "y", "zz")),
                "gone": chance.choice((None, False, False, True)),
            }
            for place in range(count)
        ]

    def with_rows(self, rows: Sequence[Row]) -> Model:
        return Model(self.key, self.rows | {row["n"]: row for row in rows})

    def only(self, numbers: Collection[int]) -> Model:
        return Model(self.key, {n: row for n, row in self.rows.items() if n in numbers})

    def compacted(self, old: Collection[int], dead: Collection[int], *, deletes: bool) -> Model:
        """Of the rows ``old`` the newest of each key alone; with ``deletes`` not even that, if it is one of ``dead``."""
        last: dict[tuple[object, ...], int] = {}
        for n, row in sorted(self.rows.items()):
            if n in old:
                last[same_key(tuple(row[one.name] for one in self.key))] = n
        gone = {n for n in last.values() if deletes and n in dead and self.rows[n]["gone"] is True}
        return self.only({n for n in self.rows if n not in old or n in last.values()} - gone)

    def newest(self, where: Where | None, *, deletes: bool) -> list[Row]:
        """One row of each key, by ``n``."""
        found: dict[tuple[object, ...], Row] = {}
        for _, row in sorted(self.rows.items()):
            key = same_key(tuple(row[one.name] for one in self.key))
            found[key] = row
        newest = [row for row in found.values() if not (deletes and row["gone"] is True)]
        return sorted((row for row in newest if where is None or where.holds(row) is True), key=lambda row: int(row["n"]))


def drawn_model(chance: random.Random) -> Model:
    return Model(drawn_key(chance))
