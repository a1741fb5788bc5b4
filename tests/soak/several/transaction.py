"""One transaction, by a thread or by coroutines: drawn changes in any order, refused ones among them, and errors midway."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Protocol, Self

import pyarrow as pa

from bk_spark import aio
from bk_spark.errors import BookKeeperError, ConfigError
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.log_transaction import LogTransaction
from tests.soak.latest.memory_cluster import URI
from tests.soak.several.model import Change, LogModel, Outcome, RefusedError, row_change
from tests.soak.several.others import change_a_log
from tests.soak.several.shapes import Columns, Row, table_of
from tests.soak.several.stage import DifferenceError, Stage, check_refusal

_ACTS = {"append": 9, "overwrite": 2, "entries": 2, "truncate": 2, "other": 1, "together": 1, "raise": 0.3, "give up": 0.15}
_MISSING_LEDGER = 10**9
_AT_FAULT = ("partition_key", "lanes", "key", "ledger", "column", "the number of logs")
"""What an error names where it is not the log."""


class MidwayError(Exception):
    """Of the program, in the block or in the middle of its rows."""


class Transaction(Protocol):
    """What the two kinds of transaction have in common, as coroutines."""

    def append_rows(self, log: str, rows: Any, **options: Any) -> Awaitable[None]: ...
    def overwrite(self, log: str, rows: Any, **options: Any) -> Awaitable[None]: ...
    def append_ledgers(self, log: str, ledgers: Any) -> Awaitable[None]: ...
    def truncate(self, log: str, before: LogPosition) -> Awaitable[None]: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None: ...


class _OfThread:
    """A LogTransaction with the face of one of coroutines. Its coroutines never wait."""

    def __init__(self, of: LogTransaction) -> None:
        self._of = of

    async def append_rows(self, log: str, rows: Any, **options: Any) -> None:
        self._of.append_rows(log, rows, **options)

    async def overwrite(self, log: str, rows: Any, **options: Any) -> None:
        self._of.overwrite(log, rows, **options)

    async def append_ledgers(self, log: str, ledgers: Any) -> None:
        self._of.append_ledgers(log, ledgers)

    async def truncate(self, log: str, before: LogPosition) -> None:
        self._of.truncate(log, before)

    async def __aenter__(self) -> Self:
        self._of.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._of.__exit__(kind, error, trace)


class TransactionStep:
    """Plays one transaction beside the model. Raises DifferenceError."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._chance = stage.chance
        self._changes: dict[str, Change] = {}
        self._lists: dict[str, list[int]] = {}
        """The ledgers of entries for each log."""
        self._is_lost = False
        """Whether nothing can be committed any more."""

    def play(self) -> None:
        application = self._stage.application(("loader", "Loader"))
        if self._chance.random() < 0.6:
            plain = self._stage.client.transaction(application)
            self._without_waits(self._played(_OfThread(plain), application, plain))
            return

        async def run() -> None:
            async with await aio.connect(URI) as client:
                transaction = client.transaction(application)
                await self._played(transaction, application, transaction)

        asyncio.run(run())

    def _without_waits(self, coroutine: Any) -> None:
        try:
            coroutine.send(None)
        except StopIteration:
            return
        raise AssertionError("a transaction of a thread has waited for an event loop")

    async def _played(self, transaction: Transaction, application: tuple[str, int] | None, outcome: Any) -> None:
        expected, why = None, None
        try:
            async with transaction:
                for _ in range(self._chance.choice((0, 1, 2, 3, 3, 5, 8))):
                    await self._act(transaction)
                expected, why = self._end(application)
        except MidwayError:
            return
        except BookKeeperError as problem:
            if self._is_lost:
                if not isinstance(problem, ConfigError) or "nothing is committed" not in str(problem):
                    raise DifferenceError(f"not how a failed transaction ends: {problem!r}") from problem
                return
            check_refusal(problem, why)
            return
        if expected is None:
            raise DifferenceError(f"it was committed: {why}")
        if (outcome.versions, outcome.is_duplicate) != (expected.versions, expected.is_duplicate):
            raise DifferenceError(f"it tells {outcome.versions}, duplicate: {outcome.is_duplicate}, not {expected}")
        self._stage.committed_transactions += 1

    def _end(self, application: tuple[str, int] | None) -> tuple[Outcome | None, RefusedError | None]:
        """What the end of the block must make, last thing in it."""
        if self._is_lost:
            return None, RefusedError("a change failed")
        try:
            self._check_owners(application)
            made = self._stage.world.commit(self._changes, application, self._stage.now_ms)
        except RefusedError as why:
            self._stage.spent |= self._given()  # some may be claimed
            return None, why
        if not made.is_duplicate:
            self._stage.spent |= self._given()
        return made, None

    def _check_owners(self, application: tuple[str, int] | None) -> None:
        last = None if application is None else self._stage.world.applications.get(application[0])
        is_duplicate = last is not None and application is not None and application[1] <= last[0]
        if not is_duplicate and self._given() & self._stage.spent:
            raise RefusedError("a ledger that another commit has listed")

    def _given(self, besides: str = "") -> set[int]:
        """The ledgers of entries that other logs get."""
        return {ledger for name, ledgers in self._lists.items() for ledger in ledgers if name != besides}

    # --- what the block does

    async def _act(self, transaction: Transaction) -> None:
        act = self._chance.choices(list(_ACTS), list(_ACTS.values()))[0]
        if act == "other":
            change_a_log(self._stage)
        elif act == "raise":
            raise MidwayError
        elif act == "give up":
            await self._failing_rows(transaction)
        elif act == "together":
            await self._together(transaction)
        else:
            name = self._name(act)
            drawn = {"entries": self._entries, "truncate": self._truncation}.get(act) or (lambda log: self._write(act, log))
            await self._tried(transaction, name, *drawn(name))

    def _name(self, act: str) -> str:
        """Mostly that of a log that can take it."""
        world, chance = self._stage.world, self._chance
        free = [one for one in world.logs if one not in self._changes]
        plain = [one for one in free if world.logs[one].newest.content != "rows"]
        fitting = {"append": [*self._stage.names, *self._changes], "entries": plain}.get(act, free)
        return chance.choice(fitting if fitting and chance.random() < 0.9 else self._stage.names)

    async def _tried(self, transaction: Transaction, name: str, planned: Change | RefusedError, call: Any) -> None:
        why = planned if isinstance(planned, RefusedError) else None
        if self._is_lost:
            why = RefusedError("a change failed before")
        try:
            await call(transaction)
        except BookKeeperError as problem:
            check_refusal(problem, why, ("the transaction is failed",) if self._is_lost else (name, *_AT_FAULT))
            self._is_lost = True
            if self._chance.random() < 0.3:
                raise MidwayError from problem
            return
        if why is not None:
            raise DifferenceError(f"log '{name}' took it: {why}")
        assert isinstance(planned, Change)
        self._changes[name] = planned

    async def _together(self, transaction: Transaction) -> None:
        """Changes of several logs at the same time, by threads or tasks. None of them is refused."""
        drawn = {name: self._write("append", name) for name in self._chance.sample(self._stage.names, 3)}
        fitting = {name: (planned, call) for name, (planned, call) in drawn.items() if isinstance(planned, Change)}
        if self._is_lost or len(self._changes.keys() | fitting) > self._stage.bound:
            return
        calls = [call(transaction) for _, call in fitting.values()]
        if isinstance(transaction, _OfThread):
            with ThreadPoolExecutor(3) as threads:
                list(threads.map(self._without_waits, calls))
        else:
            await asyncio.gather(*calls)
        self._changes |= {name: planned for name, (planned, _) in fitting.items()}

    def _allowed(self, name: str, kind: str, content: str) -> Change | None:
        """The change of this log so far. Raises RefusedError where it can have no further one of the kind."""
        known = self._changes.get(name)
        if known is None and len(self._changes) >= self._stage.bound:
            raise RefusedError("too many logs")
        if known is not None and (kind != "append" or known.kind != "append"):
            raise RefusedError("another change of the log")
        if known is not None and known.content != content:
            raise RefusedError("both rows and entries")
        return known

    def _write(self, kind: str, name: str) -> tuple[Change | RefusedError, Any]:
        chance, known = self._chance, self._changes.get(name)
        columns = self._stage.columns_for(name)
        asked = self._stage.asked_for(name)
        rows, create = self._stage.rows(columns, chance.choice((0, 1, 5, 30))), chance.random() < 0.9
        options: dict[str, Any] = {"create": create, "merge_schema": asked.merge, "lanes": asked.lanes}
        options |= {"partition_key": chance.choice(("k", ["k"], "K")) if asked.key else None}
        options |= {"compression": chance.choice(("zstd", "none", "lz4"))} if chance.random() < 0.2 else {}
        method, form = "overwrite" if kind == "overwrite" else "append_rows", self._form(rows, columns)

        async def call(transaction: Transaction) -> None:
            await getattr(transaction, method)(name, form, **options)

        try:
            known = self._allowed(name, kind, "rows")
            log = self._log(name, create=create)
            return row_change(kind, log, known, columns, asked).with_rows(rows).after(known), call
        except RefusedError as why:
            return why, call

    def _log(self, name: str, *, create: bool = False) -> LogModel | None:
        log = self._stage.world.logs.get(name)
        if log is None and not create:
            raise RefusedError("there is no such log")
        return log

    def _form(self, rows: list[Row], columns: Columns) -> Any:
        table = table_of(rows, columns)
        if self._chance.random() < 0.5:
            return table
        pieces = [batch for at in range(0, len(rows) + 1, 7) for batch in table.slice(at, 7).to_batches()]
        return pa.RecordBatchReader.from_batches(table.schema, iter(pieces))

    def _entries(self, name: str) -> tuple[Change | RefusedError, Any]:
        chance, made = self._chance, self._stage.entry_ledgers
        while len(made) < 4 or (len(made) < 40 and chance.random() < 0.3):
            made.update(self._made_ledger())
        ids = chance.sample(list(made), chance.choice((0, 1, 1, 2)))
        ids += [chance.choice((_MISSING_LEDGER, *made))] if chance.random() < 0.1 else []

        async def call(transaction: Transaction) -> None:
            await transaction.append_ledgers(name, ids)

        try:
            known = self._allowed(name, "append", "entries")
            log = self._log(name)
            if set(ids) - set(self._existing()):
                raise RefusedError("no such ledger")
            before = () if known is None else tuple(self._lists.get(name, ()))
            if len({*ids, *before}) < len(ids) + len(before):
                raise RefusedError("a ledger twice")
            if set(ids) & self._given(besides=name):
                raise RefusedError("a ledger for two logs")
        except RefusedError as why:
            return why, call
        assert log is not None
        self._lists[name] = [*before, *ids]
        rows = tuple(payload for one in ids for payload in made[one])
        return Change("append", log.life, "entries").with_rows(rows).after(known), call

    def _existing(self) -> list[int]:
        return list(self._stage.client.list_ledgers())

    def _made_ledger(self) -> dict[int, list[bytes]]:
        payloads = [self._chance.randbytes(5) for _ in range(self._chance.choice((0, 1, 3)))]
        with self._stage.client.create_ledger() as writer:
            for payload in payloads:
                writer.append(payload)
        self._stage.own_ledgers.add(writer.ledger_id)
        return {writer.ledger_id: payloads}

    def _truncation(self, name: str) -> tuple[Change | RefusedError, Any]:
        newest = self._stage.newest(name)
        listed = () if newest is None else newest.ledgers
        ids = [one for one, _, _ in listed] or [_MISSING_LEDGER]
        place, entry = self._chance.randrange(len(ids)), self._chance.randrange(4)
        ledger = _MISSING_LEDGER if self._chance.random() < 0.1 else ids[place]

        async def call(transaction: Transaction) -> None:
            await transaction.truncate(name, LogPosition(ledger, entry))

        try:
            self._allowed(name, "truncate", "")
            log = self._log(name)
            assert log is not None
            if not listed or ledger == _MISSING_LEDGER:
                raise RefusedError("no such ledger in the log")
        except RefusedError as why:
            return why, call
        is_over = entry > listed[place][2] and place + 1 < len(listed)
        return Change("truncate", log.life, first=ids[place + is_over]), call

    async def _failing_rows(self, transaction: Transaction) -> None:
        """Rows whose source ends with an error, after some of them were written."""
        columns = self._stage.base
        table = table_of(self._stage.rows(columns, 9), columns)

        def source() -> Iterator[pa.RecordBatch]:
            yield from table.to_batches()
            raise MidwayError

        self._is_lost = True
        name = self._chance.choice(self._stage.names)
        try:
            await transaction.append_rows(name, pa.RecordBatchReader.from_batches(table.schema, source()), create=True)
        except (MidwayError, BookKeeperError):
            return
        raise DifferenceError("rows that ended with an error were taken")
