"""One log and two processes that both want to lead it, over any cluster; faults are the caller's."""

from __future__ import annotations

import contextlib
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import BookKeeperError, CorruptionError
from tests.soak.chaos.agents import AgentProcess, Task
from tests.soak.chaos.duel_checker import LOG_READ, DuelVerdict, Entry, Prefixes, check_duel, damaged
from tests.soak.chaos.history import Recorder, load
from tests.soak.chaos.workload import CONFIG

LEFT, RIGHT = SIDES = ("left", "right")

DEADLINE_S = 40.0
"""For a side to stop, and for the log to be recovered, after the faults have ended."""

READ_S = 0.3

Command = Callable[[str], Sequence[str]]
"""Of the client process of a side."""


class Contest:
    """One log, its sides, and a reader that reads the whole log again and again without disturbing anybody.

    ``directory`` is an empty one for the histories.
    """

    def __init__(self, metadata_uri: str, directory: Path, seed: int, command: Command) -> None:
        self.sides: dict[str, tuple[AgentProcess, Task]] = {}
        self._metadata_uri = metadata_uri
        self._directory = directory
        self._random = random.Random(seed)
        self._command = command
        self._log_name = f"duel-{uuid.uuid4().hex[:8]}"
        self._lives = 0
        self._damage: CorruptionError | None = None
        """That a reader met."""

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Both sides fight while it lasts."""
        with contextlib.ExitStack() as undo:
            client = undo.enter_context(BookKeeper(self._metadata_uri, CONFIG))
            client.open_log(self._log_name, create=True)
            undo.callback(self._end_sides)
            for side in SIDES:
                self.start(side)
            undo.enter_context(self._reader(client))
            yield

    def start(self, side: str) -> None:
        """Start a side's process, in place of one that was killed."""
        self._lives += 1
        who = f"{side}-{self._lives}"
        agent = AgentProcess(self._command(side), self._directory / f"{who}.log")
        file = self._directory / f"{who}.jsonl"
        self.sides[side] = agent, agent.start("duel", file, who, log=self._log_name, seed=self._random.randrange(2**32))

    def stop(self) -> None:
        """Once the faults have ended: both sides stop."""
        deadline = time.monotonic() + DEADLINE_S
        for _, task in self.sides.values():
            task.stop()
        for _, task in self.sides.values():
            assert task.await_end(deadline), f"{task.who} did not stop"

    def judged(self) -> DuelVerdict:
        """Recover the log, read it twice, judge all that was recorded, and delete it."""
        with BookKeeper(self._metadata_uri, CONFIG) as client, BookKeeper(self._metadata_uri) as other:
            recorder = Recorder(self._directory / "last.jsonl", "last reader")
            try:
                self._recover(client)
                final = entries_of(client, self._log_name)
                record_reading(recorder, entries_of(other, self._log_name))
            except CorruptionError as problem:
                self._damage = self._damage or problem
            recorder.close()
            if self._damage is not None:
                return damaged(self._damage)
            client.open_log(self._log_name).delete()
        return check_duel(load(self._directory), final)

    def _end_sides(self) -> None:
        for agent, _ in self.sides.values():
            agent.close()

    @contextlib.contextmanager
    def _reader(self, client: BookKeeper) -> Iterator[None]:
        stop = threading.Event()
        thread = threading.Thread(target=self._read_again_and_again, args=(client, stop), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _read_again_and_again(self, client: BookKeeper, stop: threading.Event) -> None:
        recorder = Recorder(self._directory / "reader.jsonl", "reader")
        while not stop.wait(READ_S):
            try:
                record_reading(recorder, entries_of(client, self._log_name))
            except CorruptionError as problem:
                self._damage = problem
            except BookKeeperError:
                continue  # too few bookies answer, for a while
        recorder.close()

    def _recover(self, client: BookKeeper) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                client.open_log(self._log_name).recover()
                return
            except BookKeeperError:
                if time.monotonic() > deadline:
                    raise


def entries_of(client: BookKeeper, log_name: str) -> list[Entry]:
    """The log as it can be read now, with the place of each entry."""
    entries: list[Entry] = []
    for batch in client.open_log(log_name).read():
        columns = [batch.column(name).to_pylist() for name in ("ledger_id", "entry_id", "payload")]
        entries += zip(*columns, strict=True)
    return entries


def record_reading(recorder: Recorder, entries: list[Entry]) -> None:
    prefixes = Prefixes()
    for entry in entries:
        prefixes.add(entry)
    recorder.record(LOG_READ, count=prefixes.count, digest=prefixes.digest)
