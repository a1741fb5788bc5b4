"""One case: a log gets a few appends of drawn data, and everything is read back. What is not as the model says is a finding."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from bk_spark.errors import BookKeeperError
from tests.soak.arrow import refused
from tests.soak.arrow.forms import encoded
from tests.soak.arrow.model import ModelLog, holds_far_date, wider
from tests.soak.arrow.shapes import Drawing, Shape, draw_shape, plain

DEPTHS = (0, 0, 1, 1, 2, 3, 5, 10)


class TriedLog(Protocol):
    """A log that is tried."""

    merges_at_once: bool
    """Whether a row writer has added its columns when the first of its rows is refused."""

    @property
    def schema(self) -> pa.Schema: ...
    def append(self, rows: Any, *, merge: bool, scribble: Callable[[], None], is_whole: bool) -> None:
        """``scribble`` changes the memory of the rows, once the log has taken them. Files hold only what ``is_whole``."""

    def write(self, rows: Any, schema: pa.Schema, *, merge: bool, scribble: Callable[[], None]) -> None:
        """By a row writer that has the columns ``schema``."""

    def read(self, columns: Sequence[str] | None = None, where: str | None = None) -> pa.Table: ...
    def refuses(self, before: dict[str, pa.DataType], after: dict[str, pa.DataType]) -> bool:
        """Whether it refuses that its columns become others, though a log as such would take it."""

    def elsewhere(self) -> Iterable[tuple[str, list[pa.Table]]]:
        """All rows, by other ways out, each with its name. A tail gives them in parts, with the columns of their time."""


class Broken(Exception):
    """What the program's own source raises."""


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
        self._former: dict[str, list[Shape]] = {}
        self._far: set[str] = set()
        """Columns with dates that no timestamp can be. They stay dates."""
        self._written = 0

    def run(self) -> None:
        """Raises Finding."""
        for _ in range(self._chance.randint(1, 4)):
            self._append()
        if self._model.types:
            self._read_some()
            for way, parts in self._log.elsewhere():
                try:
                    self._check_parts(parts, is_tail=way.startswith("tail"))
                except Finding as problem:
                    raise Finding(f"read by {way}: {problem}") from None

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
        table = pa.table([columns[name] for name in names], schema=self._fields(columns, names))
        is_whole, is_typed = True, True
        if count and chance.random() < 0.1:
            name, column, is_whole = self._never(count)
            table = table.append_column(pa.field(name, column.type), column)
            wrong.add(name)
            is_typed = False
        else:
            table = self._in_chunks(table, count)
        merge = chance.random() < 0.6
        after = self._model.after({name: types[name] for name in names}, merge=merge)
        if after is not None and self._log.refuses(self._model.types, after):
            after = None
        if after is not None:
            wrong |= {name for name in names if _is_far(values[name], types[name], after[name])}
        given = _Given(table, memory, merge, is_whole, is_typed)
        if after is not None and not wrong and chance.random() < 0.08:
            self._break(given, after)
        is_taken = self._give(given, after, wrong)
        if after is not None and is_taken:
            self._written += count
            self._model.types = after
            self._model.rows += [{name: (values[name][row], types[name]) for name in names} for row in range(count)]
            self._shapes |= shapes
            for name, shape in shapes.items():
                self._former.setdefault(name, []).append(shape)
            self._far |= {name for name in names if _is_far(values[name], types[name], None)}
            self._check(self._log.read(), list(after))

    def _drawn_shapes(self) -> dict[str, Shape]:
        chance = self._chance
        found = {}
        for name, shape in self._shapes.items():
            drawn = chance.random()
            if drawn < 0.6:
                found[name] = shape
            elif drawn < 0.8 and name not in self._far:
                found[name] = wider(chance, shape)
            elif drawn < 0.9:
                found[name] = chance.choice(self._former[name])
        if not found or chance.random() < 0.3:
            found[f"c{len(self._shapes)}"] = draw_shape(chance, chance.choice(DEPTHS))
        return found

    def _fields(self, columns: dict[str, pa.Array], names: list[str]) -> pa.Schema:
        """Some with metadata, some that are never null where no value is."""
        chance = self._chance
        return pa.schema(
            [
                pa.field(
                    name,
                    columns[name].type,
                    nullable=chance.random() < 0.8 or bool(columns[name].null_count) or not len(columns[name]),
                    metadata={"unit": "metre"} if chance.random() < 0.1 else None,
                )
                for name in names
            ]
        )

    def _never(self, count: int) -> tuple[str, pa.Array, bool]:
        """A column that no log takes, its name, and whether its buffers fit together."""
        if self._chance.random() < 0.1:
            return self._chance.choice(("seq", "SEQ", "Seq")), pa.array(range(count)), True
        return refused.NAME, *refused.refused_column(self._chance, count)

    def _in_chunks(self, table: pa.Table, count: int) -> pa.Table:
        """Cut in some places, with empty chunks among them."""
        cuts = sorted(self._chance.randint(0, count) for _ in range(self._chance.choice((0, 0, 1, 3))))
        pieces = [table.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, count], strict=True)]
        columns = [pa.chunked_array([_array(piece.column(name)) for piece in pieces]) for name in table.schema.names]
        return pa.table(columns, schema=table.schema)

    def _give(self, given: _Given, after: dict[str, pa.DataType] | None, wrong: set[str]) -> bool:
        """Whether the log takes it. Raises Finding where it must not, or must."""
        table, misfits = given.table, after is None
        forms = {"table": lambda: table, "reader": table.to_reader, "stream": lambda: Stream(table)}
        rows = forms[self._chance.choice(tuple(forms))]()
        try:
            self._hand_over(given, rows, after)
        except BookKeeperError as problem:
            self._check_refusal(str(problem), table.schema.names, misfits=misfits, wrong=wrong)
            return False
        if misfits or wrong:
            text = f"taken: {table.schema}, into {self._model.types}, merge={given.merge}, wrong in {wrong or 'none'}"
            raise Finding(text)
        return True

    def _hand_over(self, given: _Given, rows: Any, after: dict[str, pa.DataType] | None) -> None:
        is_led = given.table.num_rows > 0 and given.is_typed and self._chance.random() < 0.4
        if not is_led:
            self._log.append(rows, merge=given.merge, scribble=given.scribble, is_whole=given.is_whole)
            return
        if self._log.merges_at_once and after is not None:
            self._model.types = after
        self._log.write(rows, given.table.schema, merge=given.merge, scribble=given.scribble)

    def _break(self, given: _Given, after: dict[str, pa.DataType]) -> None:
        """The same rows, of a source that fails on the way. It leaves nothing, as the next read says."""
        table = given.table
        stop = self._chance.randint(0, len(table.to_batches()))

        def batches() -> Iterator[pa.RecordBatch]:
            yield from table.to_batches()[:stop]
            raise Broken

        source = pa.RecordBatchReader.from_batches(table.schema, batches())
        try:
            self._hand_over(replace(given, is_whole=False, is_scribbled=False), source, after)
        except Broken:
            if self._model.types:
                self._check(self._log.read(), list(self._model.types))
            return
        raise Finding("a source that fails was taken")

    def _check_refusal(self, text: str, names: list[str], *, misfits: bool, wrong: set[str]) -> None:
        if not misfits and not wrong:
            raise Finding(f"refused: {text}")
        if not any(f"'{name}" in text for name in (names if misfits else wrong)):
            raise Finding(f"an error that names no column: {text}")

    # --- what is read

    def _read_some(self) -> None:
        chance, names = self._chance, list(self._model.types)
        some = chance.sample(names, chance.randint(1, len(names)))
        self._check(self._log.read(some), some)
        first = chance.randint(0, self._written)
        kept = [row for row in self._model.rows if row["seq"][0] >= first]
        self._check(self._log.read(some, f"seq >= {first}"), some, ModelLog(self._model.types, kept))

    def _check_parts(self, parts: list[pa.Table], *, is_tail: bool) -> None:
        if not is_tail:
            [whole] = parts
            self._check(whole, list(self._model.types))
            return
        left = self._model.rows
        for part in parts:
            types = {field.name: field.type for field in part.schema}
            self._check(part, list(types), ModelLog(types, left[: part.num_rows]))
            left = left[part.num_rows :]
        if left:
            raise Finding(f"the last {len(left)} rows are missing")

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


def _is_far(values: list[Any], given: pa.DataType, wanted: pa.DataType | None) -> bool:
    return any(holds_far_date(value, given, wanted) for value in values)


@dataclass(frozen=True)
class _Given:
    """What one append is to take."""

    table: pa.Table
    memory: Any
    """Of column ``seq``."""
    merge: bool
    is_whole: bool = True
    is_typed: bool = True
    """Whether a log can have columns of its types."""
    is_scribbled: bool = True

    def scribble(self) -> None:
        if self.is_scribbled:
            self.memory[:] = -1


def _array(column: pa.ChunkedArray) -> pa.Array:
    """The one chunk of a slice, which may be empty."""
    return column.chunk(0) if column.num_chunks else pa.nulls(0).cast(column.type)
