"""A log of a real cluster: each append goes in by one of the ways, and its rows are read back by all of them."""

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from bk_spark.errors import ConfigError, SchemaMismatchError
from bk_spark.rows.conversion import Conversion
from tests.soak.arrow.ways import Ways, read_file, written

_TAIL_S = 0.05
"""How long a tail waits for more, once it has what is there."""

FORMS = ("arrow", "arrows", "parquet")


class ClusterLog:
    """As CodecLog, with all that is between the caller and the disks. ``trail`` says which ways were gone."""

    merges_at_once = True

    def __init__(self, ways: Ways, chance: random.Random) -> None:
        self._ways = ways
        self._chance = chance
        self._name = f"arrow-{uuid.uuid4().hex}"
        self._copies = 0
        self.trail: list[str] = []

    # --- in

    def append(self, rows: Any, *, merge: bool, scribble: Callable[[], None], is_whole: bool) -> None:
        kinds = ["create", "log", "coroutine"] + [f"command {form}" for form in FORMS] * is_whole
        if is_whole and self._ways.spark is not None:
            kinds += ["spark"] * 3
        kind = self._chance.choice(kinds)
        self._gone(kind)
        is_new = not self.exists
        try:
            self._append(kind, rows, merge=merge)
        except BaseException:
            if is_new and self.exists:
                self._check_kept(kind)
            raise
        finally:
            scribble()

    def write(self, rows: Any, schema: pa.Schema, *, merge: bool, scribble: Callable[[], None]) -> None:
        """By a row writer that has the columns ``schema``."""
        if self._chance.random() < 0.5:
            self._gone("row writer of coroutines")
            self._ways.awaited(self._write(rows, schema, merge, scribble))
            return
        self._gone("row writer")
        log = self._ways.client.open_log(self._name, create=True)
        with log.open_row_writer(schema, merge_schema=merge) as writer:
            try:
                future = writer.append_async(rows)
            finally:
                scribble()
            future.result(60)

    async def _write(self, rows: Any, schema: pa.Schema, merge: bool, scribble: Callable[[], None]) -> None:
        log = await self._ways.aio.open_log(self._name, create=True)
        async with await log.open_row_writer(schema, merge_schema=merge) as writer:
            try:
                await writer.append(rows)
            finally:
                scribble()

    def refuses(self, before: dict[str, pa.DataType], after: dict[str, pa.DataType]) -> bool:
        return False

    def _append(self, kind: str, rows: Any, *, merge: bool) -> None:
        ways, name = self._ways, self._name
        if kind == "create":
            ways.client.append_rows(name, rows, create=True, merge_schema=merge)
        elif kind == "log":
            ways.client.open_log(name, create=True).append_rows(rows, merge_schema=merge)
        elif kind == "coroutine":
            ways.awaited(self._append_coroutine(rows, merge))
        else:
            table = rows if isinstance(rows, pa.Table) else pa.RecordBatchReader.from_stream(rows).read_all()
            if kind == "spark":
                self._append_spark(table, merge=merge)
            else:
                self._append_file(kind.removeprefix("command "), table, merge=merge)

    async def _append_coroutine(self, rows: Any, merge: bool) -> None:
        log = await self._ways.aio.open_log(self._name, create=True)
        await log.append_rows(rows, merge_schema=merge)

    def _append_spark(self, table: pa.Table, *, merge: bool) -> None:
        """Spark takes what it would hand over itself: the stored form, and in one chunk.

        Its ``createDataFrame`` ends at the first empty chunk, and drops the rows behind it.
        It does not take some lists with nulls.
        """
        try:
            conversion = Conversion(self._name, table.schema)
            stored = pa.Table.from_batches([conversion.of(batch) for batch in table.to_batches()], conversion.stored)
        except ConfigError:
            stored = table.slice(0, 0)
        frame = self._ways.frame_of(stored.combine_chunks()) if stored.num_rows else None
        if frame is None:
            self._append("create", table, merge=merge)
        else:
            self._ways.write_frame(self._name, frame, merge=merge)

    def _append_file(self, form: str, table: pa.Table, *, merge: bool) -> None:
        """As two files, whose rows follow one another."""
        cut = self._chance.randint(0, table.num_rows)
        pieces = [table.slice(0, cut), table.slice(cut)] if self._chance.random() < 0.3 else [table]
        paths = [self._ways.folder / f"{place}.{form}" for place in range(len(pieces))]
        if not all(written(piece, form, path) for piece, path in zip(pieces, paths, strict=True)):
            self._append("create", table, merge=merge)
            return
        format_of = ["--format", "arrow"] if form == "arrows" else []
        self._ways.command("log", "append", self._name, *map(str, paths), "--create", *["--merge-schema"] * merge, *format_of)

    def _check_kept(self, kind: str) -> None:
        if kind not in ("log", "coroutine"):
            raise AssertionError(f"an append by '{kind}' failed and left an empty log")

    # --- out

    def read(self, columns: Sequence[str] | None = None, where: str | None = None) -> pa.Table:
        if self._chance.random() < 0.5:
            return self._ways.client.open_log(self._name).read_rows(columns, where).read_all()
        wanted = self._ways.client.open_log(self._name).schema
        if columns is not None:
            wanted = pa.schema([wanted.field(name) for name in columns])
        return pa.Table.from_batches(self._ways.awaited(self._read(columns, where)), wanted)

    async def _read(self, columns: Sequence[str] | None, where: str | None) -> list[pa.RecordBatch]:
        log = await self._ways.aio.open_log(self._name)
        return [batch async for batch in log.read_rows(columns, where)]

    def elsewhere(self) -> Iterator[tuple[str, list[pa.Table]]]:
        """All rows, by some of the other ways out, with the way's name."""
        ways: dict[str, Callable[[], list[pa.Table]]] = {
            "tail": self._tail,
            "tail of coroutines": lambda: self._ways.awaited(self._tail_of_coroutines()),
            **{f"command {form}": partial(self._exported_rows, form) for form in ("arrow", "parquet")},
            **{f"command {form}": partial(self._copied, form) for form in ("json", "csv", "tsv")},
        }
        if not self._ways.client.open_log(self._name).read_rows(["seq"]).read_all().num_rows:
            del ways["command json"]  # a text without a line names no column
        chosen = self._chance.sample(tuple(ways), 3)
        if self._ways.spark is not None:
            ways["spark"] = lambda: [self._ways.frame(self._name)]
            chosen.append("spark")
        for name in chosen:
            try:
                yield name, ways[name]()
            except Exception as problem:
                problem.add_note(f"read by {name}")
                raise

    def _tail(self) -> list[pa.Table]:
        """Another tail goes on where the type of a column becomes wider."""
        log, start, parts = self._ways.client.open_log(self._name), "earliest", []
        while True:
            with log.tail_rows(start, timeout_s=_TAIL_S) as tail:
                batches = []
                try:
                    batches += tail
                    return [*parts, *_tables(batches)]
                except SchemaMismatchError:
                    parts += _tables(batches)
                    start = tail.position

    async def _tail_of_coroutines(self) -> list[pa.Table]:
        log, start, parts = await self._ways.aio.open_log(self._name), "earliest", []
        while True:
            async with log.tail_rows(start, timeout_s=_TAIL_S) as tail:
                batches = []
                try:
                    async for batch in tail:
                        batches.append(batch)
                    return [*parts, *_tables(batches)]
                except SchemaMismatchError:
                    parts += _tables(batches)
                    start = tail.position

    def _exported_rows(self, form: str) -> list[pa.Table]:
        return [read_file(self._exported(form))]

    def _exported(self, form: str) -> Any:
        path = self._ways.file(form)
        self._ways.command("log", "read", self._name, "--format", form, "--output", str(path), "--limit", "1000000")
        return path

    def _copied(self, form: str) -> list[pa.Table]:
        """The text of ``log read`` as ``log append`` takes it, into a log of the same columns."""
        self._copies += 1
        copy = f"{self._name}-{self._copies}"
        schema = self._ways.client.open_log(self._name).schema
        self._ways.client.append_rows(copy, schema.empty_table(), create=True)
        path = self._exported(form)
        self._ways.command("log", "append", copy, str(path))
        found = self._ways.client.open_log(copy).read_rows().read_all()
        self._ways.client.open_log(copy).delete()
        return [found]

    # --- the log

    @property
    def exists(self) -> bool:
        return self._name in self._ways.client.list_logs()

    def delete(self) -> None:
        if self.exists:
            self._ways.client.open_log(self._name).delete()

    def _gone(self, kind: str) -> None:
        self.trail.append(kind)


def _tables(batches: list[pa.RecordBatch]) -> list[pa.Table]:
    """One of each row of batches with the same columns."""
    groups = itertools.groupby(batches, lambda batch: batch.schema)
    return [pa.Table.from_batches(list(group), schema) for schema, group in groups]
