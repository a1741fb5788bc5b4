"""Two processes duel for one log over real bookies, and are suspended and killed.

``python -m tests.soak.chaos.duel --seconds 60`` (``make duel``).

Each takes the log over as soon as it is displaced. Meanwhile a reader reads the whole log again and again without disturbing
anybody; bookies are killed and come back. In the end the log is recovered and read by two clients, and the histories are
checked (duel_checker.py).
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.errors import BookKeeperError
from bk_spark.local.cluster import LocalCluster
from tests.soak.chaos.agents import AgentProcess, Task, python_agent
from tests.soak.chaos.duel_checker import LOG_READ, DuelVerdict, Entry, Prefixes, check_duel
from tests.soak.chaos.history import Event, Recorder, load
from tests.soak.chaos.workload import CONFIG

SIDES = ("left", "right")
DEADLINE_S = 40.0
"""For a side to stop, and for the log to be recovered, after the faults have ended."""
READ_S = 0.3
FAULT_S = (0.4, 1.2)
SUSPENDED_S = (0.1, 1.5)
"""Up to longer than a leadership lasts: a leader that comes to life again has been displaced, and does not know it."""
STALLED_S = (0.3, 0.9)
"""Less than the time after which a bookie is replaced (workload.py)."""


class Duel:
    """One duel on a cluster of at least four bookies, for its histories an empty directory, and chance from a seed."""

    def __init__(self, cluster: LocalCluster, directory: Path, seed: int) -> None:
        self._cluster = cluster
        self._directory = directory
        self._random = random.Random(seed)
        self._log_name = f"duel-{uuid.uuid4().hex[:8]}"
        self._sides: dict[str, tuple[AgentProcess, Task]] = {}
        self._lives = 0
        self.faults: list[str] = []

    def fight(self, seconds: float) -> DuelVerdict:
        with contextlib.ExitStack() as undo:
            client = undo.enter_context(BookKeeper(self._cluster.metadata_uri, CONFIG))
            client.open_log(self._log_name, create=True)
            undo.callback(self._end_sides)
            for side in SIDES:
                self._start(side)
            with self._reader(client):
                self._disturb(time.monotonic() + seconds)
                self._stop_sides()
            return check_duel(*self._finally(client))

    def _start(self, side: str) -> None:
        self._lives += 1
        who = f"{side}-{self._lives}"
        agent = AgentProcess(python_agent(self._cluster.metadata_uri), self._directory / f"{who}.log")
        file = self._directory / f"{who}.jsonl"
        self._sides[side] = agent, agent.start("duel", file, who, log=self._log_name, seed=self._random.randrange(2**32))

    def _disturb(self, deadline: float) -> None:
        """Until the deadline, and until there was a fault of each kind."""
        tick = threading.Event()
        kinds = [self._suspend, self._kill, self._lose_bookie, self._stall_bookie]
        while time.monotonic() < deadline or len(self.faults) < len(kinds):
            if len(self.faults) % len(kinds) == 0:
                self._random.shuffle(kinds)
            tick.wait(self._random.uniform(*FAULT_S))
            fault = kinds[len(self.faults) % len(kinds)]
            self.faults.append(fault.__name__.removeprefix("_"))
            fault(tick)

    def _suspend(self, tick: threading.Event) -> None:
        agent, _ = self._sides[self._random.choice(SIDES)]
        agent.suspend()
        tick.wait(self._random.uniform(*SUSPENDED_S))
        agent.resume()

    def _kill(self, tick: threading.Event) -> None:
        side = self._random.choice(SIDES)
        self._sides[side][0].close()
        self._start(side)

    def _lose_bookie(self, tick: threading.Event) -> None:
        bookie = self._random.choice(self._cluster.bookies)
        bookie.kill()
        try:
            tick.wait(self._random.uniform(*SUSPENDED_S))
        finally:
            bookie.start()

    def _stall_bookie(self, tick: threading.Event) -> None:
        """A ledger of two bookies stands still, while the next one may be on two others; and a side is displaced meanwhile."""
        bookie = self._random.choice(self._cluster.bookies)
        bookie.suspend()
        try:
            tick.wait(self._random.uniform(*STALLED_S))
        finally:
            bookie.resume()

    def _stop_sides(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        for _, task in self._sides.values():
            task.stop()
        for _, task in self._sides.values():
            assert task.await_end(deadline), f"{task.who} did not stop"

    def _end_sides(self) -> None:
        for agent, _ in self._sides.values():
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
            with contextlib.suppress(BookKeeperError):  # too few bookies answer, for a while
                record_reading(recorder, entries_of(client, self._log_name))
        recorder.close()

    def _finally(self, client: BookKeeper) -> tuple[list[Event], list[Entry]]:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                client.open_log(self._log_name).recover()
                break
            except BookKeeperError:
                if time.monotonic() > deadline:
                    raise
        final = entries_of(client, self._log_name)
        recorder = Recorder(self._directory / "last.jsonl", "last reader")
        with BookKeeper(self._cluster.metadata_uri) as other:
            record_reading(recorder, entries_of(other, self._log_name))
        recorder.close()
        client.open_log(self._log_name).delete()
        return load(self._directory), final


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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.chaos.duel", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="default %(default)s")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of faults and appends (default %(default)s)")
    args = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="bk_spark-duel-"))
    with LocalCluster(bookies=4) as cluster:
        duel = Duel(cluster, directory, args.seed)
        verdict = duel.fight(args.seconds)
    print(f"{verdict}\nfaults: {', '.join(duel.faults)}\nhistories: {directory}")
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
