"""Logs in memory beside their model: what both steps of a history share. Every log is looked at after every commit."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import pyarrow as pa

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.driver.client_context import ClientContext
from bk_spark.datasource.write import several_attempt, several_writer
from bk_spark.errors import BookKeeperError, MetadataUnavailableError
from bk_spark.log import log_transaction
from bk_spark.log.rows import append_rows, read_rows
from bk_spark.metadata.store import Create
from tests.memory_store import MemoryStore
from tests.soak.several.model import Asked, RefusedError, Version, World
from tests.soak.several.shapes import KEY, NUMBER, Columns, Row, drawn_columns, drawn_rows, shown_row

NAMES = (
    "orders",
    "Orders",
    "ORDERS",
    "a b, c",
    "été.log",
    "x" * 200,
    "e\u0301te\u0301.log",
    "-",
    "null",
    "%2F",
    "\u202e",
    "'\"{}",
)
"""Valid ones: some differ in case, in composition, or are as long as a name may be."""


class DifferenceError(AssertionError):
    """The logs are not what the model says."""


class Stage:
    """The logs, the model, and a clock that stands, jumps and goes back."""

    def __init__(self, client: BookKeeper, chance: random.Random) -> None:
        self.client = client
        self.chance = chance
        self.world = World()
        self.names = chance.sample(NAMES, 6)
        self.bound = chance.choice((2, 4, 100))
        """Logs of one commit."""
        self.ledger_bound = chance.choice((3, 1024, 1024))
        """Ledgers of one task of a write."""
        self.now_ms = 1_700_000_000_000
        self.base: Columns = drawn_columns(chance, None)
        self.own_ledgers: set[int] = set()
        """Of entries, made for appends; and what a failed write leaves to the sweep."""
        self.entry_ledgers: dict[int, list[bytes]] = {}
        """Closed ones and their payloads, for appends of ledgers."""
        self.spent: set[int] = set()
        """Those that a commit has listed, or may have claimed."""
        self.committed_transactions = self.written = 0
        self._numbers = 0
        self._legal: list[dict[str, int]] = []
        self._seen: list[dict[str, int]] = []

    def pass_time(self) -> None:
        self.now_ms += self.chance.choice((0, 0, 1, 7, 1000, -5))

    def rows(self, columns: Columns, count: int) -> list[Row]:
        self._numbers += count
        return drawn_rows(self.chance, columns, self._numbers - count, count)

    def columns_for(self, name: str) -> Columns:
        """Rows that the log often takes."""
        log = self.world.logs.get(name)
        stored = None if log is None or log.newest.content != "rows" else log.newest.columns
        return drawn_columns(self.chance, stored or self.base)

    def asked_for(self, name: str) -> Asked:
        """Mostly a key for a new log, and nothing for one that has rows."""
        chance, newest = self.chance, self.newest(name)
        is_new = newest is None or newest.content is None
        key = chance.random() < (0.35 if is_new else 0.04)
        lanes = chance.choice((None, 1, 2, 3)) if chance.random() < (0.7 if is_new and key else 0.03) else None
        return Asked(chance.random() < 0.6, key, lanes)

    def application(self, ids: Sequence[str], stored: Callable[[str], str] = str) -> tuple[str, int] | None:
        """None, or an id and a version: often the one that comes next, the last one again, or an older one."""
        if self.chance.random() < 0.4:
            return None
        drawn = self.chance.choice(ids)
        last = self.world.applications.get(stored(drawn), (0, {}))[0]
        return drawn, max(0, last + self.chance.choice((1, 1, 2, 0, 0, -1)))

    def newest(self, name: str) -> Version | None:
        return self.world.logs[name].newest if name in self.world.logs else None

    # --- one step, and what is seen meanwhile

    @contextmanager
    def step(self) -> Iterator[None]:
        """Readers look after every change of metadata: they must see the logs as they are between two commits.

        Now and then the request of a commit is lost, or the reply to it: the next try finds out which.
        """
        self.pass_time()
        self._legal, self._seen = [self.world.numbers], []
        looking = threading.Lock()
        real = MemoryStore.transaction

        lost = self.chance.choice((None,) * 8 + ("request", "reply"))

        def transaction(store: MemoryStore, changes: Any) -> None:
            nonlocal lost
            loses = lost if any(isinstance(one, Create) and "/versions/" in one.path for one in changes) else None
            lost = None if loses else lost
            if loses != "request":
                real(store, changes)
            if loses is not None:
                raise MetadataUnavailableError(store.uri, f"the {loses} was lost")
            with looking:
                self._seen.append(self.client.versions_of(names) if (names := self.client.list_logs()) else {})

        with mock.patch.object(MemoryStore, "transaction", transaction):
            yield
        self.committed()
        torn = next((seen for seen in self._seen if seen not in self._legal), None)
        if torn is not None:
            raise DifferenceError(f"a reader saw {torn}, the logs were {self._legal}")
        self._check_ledgers()

    def committed(self) -> None:
        """Look at all logs, and learn how they put their rows, after what may have changed them."""
        if self.world.numbers not in self._legal:
            self._legal.append(self.world.numbers)
        found = self.client.list_logs()
        if found != sorted(self.world.logs):
            raise DifferenceError(f"the logs are {found}, not {sorted(self.world.logs)}")
        if found and (versions := self.client.versions_of(found)) != self.world.numbers:
            raise DifferenceError(f"the logs are at {versions}, not at {self.world.numbers}")
        for name, log in self.world.logs.items():
            if not log.newest.ledgers:
                self._learn(name, log.newest)

    def _learn(self, name: str, expected: Version) -> None:
        log = self.client.open_log(name)
        snapshot = log.snapshot()
        content = None if snapshot.content is None else snapshot.content.value
        found = (content, bool(snapshot.lanes.columns), snapshot.lanes.count)
        if found != (expected.content, expected.key is not None, expected.lanes):
            raise DifferenceError(f"log '{name}' is {found}, not {expected}")
        rows: Sequence[Any] = expected.rows
        if content == "rows":
            _check_columns(name, log.schema, expected.columns)
            rows = _in_order(name, log.read_rows().read_all().to_pylist(), expected)
        elif content == "entries":
            payloads = [one for batch in log.read() for one in batch.column("payload").to_pylist()]
            if payloads != list(rows):
                raise DifferenceError(f"log '{name}' has {payloads}, not {rows}")
        ledgers = [
            (one.ledger_id, one.rows if content == "rows" else one.last_entry_id + 1, one.last_entry_id)
            for one in snapshot.ledgers
        ]
        self.world.learn(name, rows, ledgers)

    def _check_ledgers(self) -> None:
        """None is left over, and none that a version lists is gone."""
        listed = {
            one.ledger_id
            for name, number in self.world.numbers.items()
            for version in range(number + 1)
            for one in self.client.open_log(name).snapshot(version).ledgers
        }
        found = set(self.client.list_ledgers())
        if not listed <= found or found - listed - self.own_ledgers:
            raise DifferenceError(f"ledgers {listed - found} are gone, {found - listed - self.own_ledgers} are left over")

    def leave(self) -> None:
        """What there is now may stay: a task that failed left it."""
        self.own_ledgers |= set(self.client.list_ledgers())


def check_refusal(problem: BaseException, why: RefusedError | None, named: Sequence[str] = ()) -> None:
    """An error that the model expects: one sentence, with one of the texts in it."""
    text = str(problem)
    if why is None:
        raise DifferenceError(f"it was refused: {problem!r}") from problem
    if not isinstance(problem, BookKeeperError) or "\n" in text or not text:
        raise DifferenceError(f"no clear sentence for '{why}': {problem!r}") from problem
    if named and not any(one in text for one in named):
        raise DifferenceError(f"the sentence for '{why}' names none of {named}: {text}") from problem


def _check_columns(name: str, found: pa.Schema, expected: Columns) -> None:
    if found.names != list(expected) or any(found.field(one).type != kind for one, kind in expected.items()):
        raise DifferenceError(f"log '{name}' has the columns {found}, not {expected}")


def _in_order(name: str, found: list[Row], expected: Version) -> list[Row]:
    """The rows of the model in the order in which the log has them."""
    by_number = {row[NUMBER]: row for row in expected.rows}
    numbers = [row[NUMBER] for row in found]
    if sorted(numbers) != sorted(by_number):
        raise DifferenceError(f"log '{name}' has the rows {numbers}, not {list(by_number)}")
    rows = [by_number[number] for number in numbers]
    if found != [shown_row(row, expected.columns) for row in rows]:
        raise DifferenceError(f"log '{name}' has {found}, not {rows}")
    key = _same if expected.key is None else _key_of
    if _by_key(rows, key) != _by_key(expected.rows, key):
        raise DifferenceError(f"log '{name}' has its rows as {numbers}, they came as {list(by_number)}")
    return rows


def _same(_: Row) -> None:
    return None


def _key_of(row: Row) -> str:
    return repr(row.get(KEY))


def _by_key(rows: Sequence[Row], key: Callable[[Row], Any]) -> dict[Any, list[int]]:
    found: dict[Any, list[int]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row[NUMBER])
    return found


@contextmanager
def bounds(stage: Stage) -> Iterator[None]:
    """The stage's clock, and bounds in which a few rows and logs are many."""
    chance, bound = stage.chance, stage.bound
    with ExitStack() as patched:
        for module in (several_attempt, several_writer, log_transaction):
            patched.enter_context(mock.patch.object(module, "MAX_LOGS", bound))
        patched.enter_context(mock.patch.object(several_attempt, "MOST_LEDGERS", stage.ledger_bound))
        patched.enter_context(mock.patch.object(append_rows, "MAX_ROWS_PER_ENTRY", chance.choice((2, 20, 65_536))))
        patched.enter_context(mock.patch.object(read_rows, "STRETCH_BYTES", chance.choice((1, 2000, 8 << 20))))
        yield


@contextmanager
def standing_clock(now_ms: Callable[[], int]) -> Iterator[None]:
    """For clients that are opened within."""
    with mock.patch.object(ClientContext, "wall_clock_ms", side_effect=now_ms):
        yield
