"""One write with option ``logColumn``, as Spark makes it: some tasks, whose rows name their logs, then a commit or an abort."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from bk_spark.datasource.write import several_writer
from bk_spark.datasource.write.writer import application_of
from bk_spark.errors import BookKeeperError
from bk_spark.rows.lanes import lane_of
from tests.cluster.datasource.direct import Direct
from tests.soak.latest.memory_cluster import URI
from tests.soak.several.model import Change, RefusedError, row_change
from tests.soak.several.others import change_a_log
from tests.soak.several.shapes import KEY, Row, clashes, table_of, together
from tests.soak.several.stage import DifferenceError, Stage, check_refusal
from tests.soak.several.transaction import MidwayError

INVALID = ("", ".", "..", "a/b", "/", "x" * 201, "\0", "a\nb", "\ue000", "\uffff", "\U0001f600", "\x7f", b"\xff", b"orders\xc3")
"""Names that no log can have, and bytes that are no text at all."""
_OF_LANES = ("partitionKey", "lanes", "key", "column")
"""What names the option or the column at fault, where it is not the log."""


class ColumnStep:
    """Plays one write beside the model. Raises DifferenceError."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._chance = chance = stage.chance
        self._targets = chance.sample(stage.names, chance.choice((1, 2, 3, 6)))
        if chance.random() < 0.7:
            self._targets = [one for one in self._targets if self._takes(one)] or self._targets[:1]
        self._columns = stage.columns_for(self._targets[0])
        self._column = chance.choice(("into", "Into", "log", "é"))
        self._asked = stage.asked_for(self._targets[0])
        self._creates = chance.random() < 0.85
        self._spoilt = chance.choice((0.0, 0.0, 0.0, 0.02, 0.2))
        """The share of rows whose name is none."""
        self._kind = chance.choices((pa.string(), pa.large_string(), pa.int64(), pa.binary()), (20, 2, 1, 1))[0]
        is_stream = chance.random() < 0.4
        self._application = stage.application(("loader", "é"), application_of if is_stream else str)
        self._is_stream = is_stream and self._application is not None
        self._why: list[tuple[str, tuple[str, ...]]] = []
        """Why the write must be refused, each with texts of which the sentence has one."""
        self._changes: dict[str, Change] = {}
        self._is_messy = False
        """Whether ledgers may be left to the sweep."""

    def _takes(self, name: str) -> bool:
        """Whether the log takes rows of the kind that most logs have."""
        newest = self._stage.newest(name)
        return newest is None or newest.content is None or together(newest.columns, self._stage.base) is not None

    def play(self) -> None:
        chance = self._chance
        options = self._options()
        if not pa.types.is_string(self._kind) and not pa.types.is_large_string(self._kind):
            self._refused(str(self._kind), self._column)
        if clashes(self._columns):
            self._refused("two names that differ in case alone", "'s' and 'S'", "'S' and 's'")
        is_overwrite = not self._is_stream and chance.random() < 0.03
        if is_overwrite:
            self._refused("overwrite", "overwrite")
        made = False
        try:
            self._write(options, overwrite=is_overwrite)
            made = True
        except MidwayError:
            pass
        except BookKeeperError as problem:
            self._is_messy = True
            self._check(problem)
        if self._is_messy:
            self._stage.leave()
        if made:
            self._stage.written += 1

    def _refused(self, why: str, *named: str) -> None:
        self._why.append((why, named))

    def _check(self, problem: BookKeeperError) -> None:
        named = [one for _, texts in self._why for one in texts]
        check_refusal(problem, RefusedError(", ".join(why for why, _ in self._why)) if self._why else None, named)

    def _options(self) -> dict[str, Any]:
        chance = self._chance
        options: dict[str, Any] = {"logColumn": chance.choice((self._column, self._column.upper()))}
        options |= {"createLogs": self._creates, "mergeSchema": self._asked.merge}
        options |= {"partitionKey": "k"} if self._asked.key else {}
        options |= {} if self._asked.lanes is None else {"lanes": self._asked.lanes}
        options |= {"maxRowsPerEntry": chance.choice((1, 4))} if chance.random() < 0.3 else {}
        if self._application is not None and not self._is_stream:
            options |= {"applicationId": self._application[0], "applicationVersion": self._application[1]}
        return options

    # --- as Spark

    def _write(self, options: dict[str, Any], *, overwrite: bool) -> None:
        tasks = [self._drawn_batches() for _ in range(self._chance.choice((1, 1, 2, 3)))]
        schema = from_arrow_schema(tasks[0][0][1].schema)
        writer = self._writer(options, schema, overwrite)
        messages: list[Any] = []
        try:
            for batches in tasks:
                self._others()
                self._plan([row for rows, _ in batches for row in rows])
                messages.append(self._task(writer, batches))
            self._others()
            self._commit(self._writer(options, schema, overwrite) if self._is_stream else writer, messages)
        except (BookKeeperError, MidwayError):
            batch = () if self._application is None or not self._is_stream else (self._application[1],)
            writer.abort([*messages, None], *batch)
            raise

    def _writer(self, options: dict[str, Any], schema: Any, overwrite: bool) -> Any:
        source = Direct(URI).source(None, **options)
        return pickle.loads(
            pickle.dumps(source.streamWriter(schema, False) if self._is_stream else source.writer(schema, overwrite))
        )

    def _task(self, writer: Any, batches: list[tuple[list[Row], pa.RecordBatch]]) -> Any:
        """Now and then it runs twice, or fails in the middle."""
        fails, runs = self._chance.random() < 0.04, 2 if self._chance.random() < 0.1 else 1
        self._is_messy |= fails or runs == 2

        def given() -> Iterator[pa.RecordBatch]:
            yield from (batch for _, batch in batches)
            if fails:
                raise MidwayError

        query = self._application or ("", 0)
        with mock.patch.object(several_writer, "running_batch", return_value=query):
            found = [pickle.loads(pickle.dumps(writer)).write(given()) for _ in range(runs)][-1]
        return pickle.loads(pickle.dumps(found))

    def _others(self) -> None:
        if self._chance.random() < 0.08:
            change_a_log(self._stage)

    def _commit(self, writer: Any, messages: list[Any]) -> None:
        if len(self._changes) > self._stage.bound:
            self._refused("too many logs", str(len(self._changes)))
        application, batch = self._application, ()
        if self._is_stream and application is not None:
            batch, application = (application[1],), (application_of(application[0]), application[1])
        if not self._why:
            try:
                self._stage.world.commit(self._changes, application, self._stage.now_ms)
            except RefusedError as why:
                self._refused(str(why), *self._changes)
        writer.commit(messages, *batch)
        if self._why:
            raise DifferenceError(f"it was committed: {self._why}")

    # --- rows and the model

    def _drawn_batches(self) -> list[tuple[list[Row], pa.RecordBatch]]:
        """Rows with their names, in some batches; the names go into a column at any place."""
        place = self._chance.randrange(len(self._columns) + 1)
        counts = self._chance.choice(((0,), (0, 0), (4,), (1, 0, 3), (30, 30), (9,)))
        found = []
        for count in counts:
            rows = self._stage.rows(self._columns, count)
            names = [self._name() for _ in rows]
            batch = table_of(rows, self._columns).combine_chunks().to_batches()
            table = batch[0] if batch else pa.RecordBatch.from_pylist([], pa.schema(list(self._columns.items())))
            columns, labels = table.columns, table.schema.names
            columns.insert(place, self._names(names))
            labels.insert(place, self._column)
            named = [{"": name} | row for name, row in zip(names, rows, strict=True)]
            found.append((named, pa.RecordBatch.from_arrays(columns, labels)))
        return found

    def _name(self) -> str | bytes | None:
        if self._chance.random() < self._spoilt:
            return self._chance.choice((None, *INVALID))
        return self._chance.choice(self._targets)

    def _names(self, names: list[Any]) -> pa.Array:
        if self._kind == pa.int64():
            return pa.array(range(len(names)), pa.int64())
        as_bytes = [one.encode() if isinstance(one, str) else one for one in names]
        raw = pa.array(as_bytes, pa.large_binary() if pa.types.is_large_string(self._kind) else pa.binary())
        return raw if self._kind == pa.binary() else raw.view(self._kind)

    def _plan(self, rows: list[Row]) -> None:
        """What a task must find wrong with these rows, with the logs as they stand."""
        met, ledgers = set(), set()
        for row in rows:
            name = row.pop("")
            if name is None:
                self._refused("a null", "null")
            elif name in INVALID:
                self._refused(repr(name), "UTF-8" if isinstance(name, bytes) else repr(name))
            else:
                met.add(name)
                self._plan_row(name, row)
                ledgers.add((name, self._lane(name, row)))
        if len(ledgers) > self._stage.ledger_bound:
            self._refused("too many ledgers", "the number of ledgers")
        if len(met) > self._stage.bound:
            self._refused("too many logs", *map(repr, met))

    def _lane(self, name: str, row: Row) -> int:
        key, lanes = row.get(KEY), self._changes[name].lanes if name in self._changes else 1
        if lanes == 1 or isinstance(key, list):
            return 0
        return lane_of([key.encode() if isinstance(key, str) else key], lanes)

    def _plan_row(self, name: str, row: Row) -> None:
        log = self._stage.world.logs.get(name)
        if log is None and not self._creates:
            self._refused("no such log", repr(name))
            return
        try:
            change = row_change("append", log, None, self._columns, self._asked)
        except RefusedError as why:
            self._refused(str(why), name, *_OF_LANES)
            return
        known = self._changes.get(name)
        if known is not None and (known.life, known.key, known.lanes) != (change.life, change.key, change.lanes):
            self._refused("the log changed between two tasks", name)
        self._changes[name] = change.with_rows([*(known.rows if known is not None else ()), row])
