"""One case: a log gets a few appends of drawn data, and everything is read back. What is not as the model says is a finding."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from bk_spark.errors import BookKeeperError
from tests.soak.arrow.forms import encoded
from tests.soak.arrow.model import ModelLog, wider
from tests.soak.arrow.shapes import Drawing, Shape, draw_shape, plain

DEPTHS = (0, 0, 1, 1, 2, 3, 5, 10)


class TriedLog(Protocol):
    """A log that is tried."""

    @property
    def schema(self) -> pa.Schema: ...
    def append(self, rows: Any, *, merge: bool, scribble: Callable[[], None]) -> None: ...
    def write(self, rows: Any, schema: pa.Schema, *, merge: bool, scribble: Callable[[], None]) -> None: ...
    def read(self, columns: Sequence[str] | None = None, where: str | None = None) -> pa.Table: ...


class Finding(AssertionError):
    """What was not as it must be."""


class Stream:
    """Data of another library, which Arrow's interface for C hands over."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class Case:
    """Drawn from ``seed``, on an empty log."""

    def __init__(self, seed: int, log: TriedLog) -> None:
        self._chance = random.Random(seed)
        self._log = log
        self._model = ModelLog()
        self._shapes: dict[str, Shape] = {}
        self._written = 0

    def run(self) -> None:
        """Raises Finding."""
        for _ in range(self._chance.randint(1, 4)):
            self._append()
        if self._model.types:
            self._read_some()

    # --- what is given

    def _append(self) -> None:
        chance = self._chance
        drawing = Drawing(chance, 0.05 if chance.random() < 0.15 else 0.0, chance.random() < 0.5)
        count = chance.choice((0, 1, 2, 5, 5, 9, 70))
        shapes = self._drawn_shapes()
        columns, types, wrong = {}, {}, set()
        values: dict[str, list[Any]] = {}
        for name, shape in shapes.items():
            before = len(drawing.wrong)
            values[name] = [drawing.value(shape) for _ in range(count)]
            if len(drawing.wrong) > before:
                wrong.add(name)
            is_void = chance.random() < 0.1 and not drawing.hides_wrong and name not in wrong
            values[name] = [None] * count if is_void else values[name]
            columns[name], types[name] = encoded(shape, values[name], drawing)
        memory = np.arange(self._written, self._written + count, dtype=np.int64)
        columns["seq"], types["seq"], values["seq"] = pa.array(memory), pa.int64(), memory.tolist()
        names = chance.sample(tuple(columns), len(columns))
        table = self._in_chunks(pa.table([columns[name] for name in names], names=names), count)
        merge = chance.random() < 0.6
        after = self._model.after({name: types[name] for name in names}, merge=merge)
        is_taken = self._give(table, memory, merge=merge, refused=after is None, wrong=wrong)
        if after is not None and is_taken:
            self._written += count
            self._model.types = after
            self._model.rows += [{name: (values[name][row], types[name]) for name in names} for row in range(count)]
            self._shapes |= shapes
            self._check(self._log.read(), list(after))

    def _drawn_shapes(self) -> dict[str, Shape]:
        chance = self._chance
        found = {}
        for name, shape in self._shapes.items():
            drawn = chance.random()
            if drawn < 0.6:
                found[name] = shape
            elif drawn < 0.8:
                found[name] = wider(chance, shape)
        if not found or chance.random() < 0.3:
            found[f"c{len(self._shapes)}"] = draw_shape(chance, chance.choice(DEPTHS))
        return found

    def _in_chunks(self, table: pa.Table, count: int) -> pa.Table:
        """Cut in some places, with empty chunks among them."""
        cuts = sorted(self._chance.randint(0, count) for _ in range(self._chance.choice((0, 0, 1, 3))))
        pieces = [table.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, count], strict=True)]
        columns = [pa.chunked_array([_array(piece.column(name)) for piece in pieces]) for name in table.schema.names]
        return pa.table(columns, names=table.schema.names)

    def _give(self, table: pa.Table, memory: Any, *, merge: bool, refused: bool, wrong: set[str]) -> bool:
        """Whether the log takes it. Raises Finding where it must not, or must."""
        chance, log = self._chance, self._log
        given = {"table": lambda: table, "reader": table.to_reader, "stream": lambda: Stream(table)}
        rows = given[chance.choice(tuple(given))]()

        def scribble() -> None:
            memory[:] = -1

        try:
            if table.num_rows and chance.random() < 0.4:
                log.write(rows, table.schema, merge=merge, scribble=scribble)
            else:
                log.append(rows, merge=merge, scribble=scribble)
        except BookKeeperError as problem:
            self._check_refusal(str(problem), table.schema.names, refused=refused, wrong=wrong)
            return False
        if refused or wrong:
            raise Finding(f"taken: {table.schema}, into {self._model.types}, merge={merge}, wrong values in {wrong or 'none'}")
        return True

    def _check_refusal(self, text: str, names: list[str], *, refused: bool, wrong: set[str]) -> None:
        if not refused and not wrong:
            raise Finding(f"refused: {text}")
        if not any(f"'{name}" in text for name in (names if refused else wrong)):
            raise Finding(f"an error that names no column: {text}")

    # --- what is read

    def _read_some(self) -> None:
        chance, names = self._chance, list(self._model.types)
        some = chance.sample(names, chance.randint(1, len(names)))
        self._check(self._log.read(some), some)
        first = chance.randint(0, self._written)
        kept = [row for row in self._model.rows if row["seq"][0] >= first]
        self._check(self._log.read(some, f"seq >= {first}"), some, ModelLog(self._model.types, kept))

    def _check(self, found: pa.Table, names: list[str], model: ModelLog | None = None) -> None:
        model = model or self._model
        if found.schema.names != names:
            raise Finding(f"columns {found.schema.names}, not {names}")
        if found.num_rows != len(model.rows):
            raise Finding(f"{found.num_rows} rows, not {len(model.rows)}")
        for name in names:
            column = found.column(name)
            if not column.type.equals(model.types[name]):
                raise Finding(f"column {name} is {column.type}, not {model.types[name]}")
            read = [value for chunk in column.chunks for value in plain(chunk)]
            if read != model.column(name):
                raise Finding(f"column {name} of {column.type} is {read}, not {model.column(name)}")


def _array(column: pa.ChunkedArray) -> pa.Array:
    """The one chunk of a slice, which may be empty."""
    return column.chunk(0) if column.num_chunks else pa.nulls(0).cast(column.type)
