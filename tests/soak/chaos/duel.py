"""Two processes duel for one log over real bookies, and are suspended and killed.

``python -m tests.soak.chaos.duel --seconds 60`` (``make duel``).

Each takes the log over as soon as it is displaced. Meanwhile a reader reads the whole log again and again without disturbing
anybody; bookies are killed and come back. In the end the log is recovered and read by two clients, and the histories are
checked (duel_checker.py).
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

from bk_spark.local.cluster import LocalCluster
from tests.soak.chaos.agents import python_agent
from tests.soak.chaos.contest import SIDES, Contest
from tests.soak.chaos.duel_checker import DuelVerdict

FAULT_S = (0.4, 1.2)
SUSPENDED_S = (0.1, 1.5)
"""Up to longer than a leadership lasts: a leader that comes to life again has been displaced, and does not know it."""
STALLED_S = (0.3, 0.9)
"""Less than the time after which a bookie is replaced (workload.py)."""


class Duel:
    """One duel on a cluster of at least four bookies, for its histories an empty directory, and chance from a seed."""

    def __init__(self, cluster: LocalCluster, directory: Path, seed: int) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self._contest = Contest(cluster.metadata_uri, directory, seed, lambda side: python_agent(cluster.metadata_uri))
        self.faults: list[str] = []

    def fight(self, seconds: float) -> DuelVerdict:
        with self._contest.held():
            self._disturb(time.monotonic() + seconds)
            self._contest.stop()
        return self._contest.judged()

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
        agent, _ = self._contest.sides[self._random.choice(SIDES)]
        agent.suspend()
        tick.wait(self._random.uniform(*SUSPENDED_S))
        agent.resume()

    def _kill(self, tick: threading.Event) -> None:
        side = self._random.choice(SIDES)
        self._contest.sides[side][0].close()
        self._contest.start(side)

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
