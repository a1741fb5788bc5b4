"""A bookie with many ledgers is killed for good: how long until AutoRecovery has brought back every copy.

``python -m tests.soak.chaos.lost_bookie --ledgers 10000`` (``make lost-bookie``) prints ledgers a minute and bytes a second
against what the disk was measured to take, and exits with 1 unless

- every fragment has its write quorum again: no metadata names the bookie, and each replica was read and verified;
- it took no longer than copying the bytes at 30 % of the disk's rate, or 2,000 ledgers a minute, whichever allows more time;
- no entry that was confirmed was unreadable at any moment, and the writers went on without an error.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import MIB
from bk_spark.local.cluster import DEFAULT_BOOKIE_CONFIG, LocalCluster
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.replication.groups import lost_bytes
from bk_spark.replication.ledger_check import LedgerCheck
from bk_spark.replication.settings import AutoRecoveryConfig
from tests.soak.chaos.steady_load import ENTRY_BYTES, SteadyLoad, is_unreadable, payload

BOOKIES = 5
RECOVERIES = 2
"""AutoRecovery processes: as many as this machine's cores can feed."""

SESSION_S = 2.0
"""After this long a killed bookie is seen to be gone."""

GRACE_S = 1.0
DISK_PROBE_BYTES = 256 * MIB
SHARE_OF_DISK = 0.3
LEDGERS_A_MINUTE = 2_000
THREADS = 8
_LOOK_S = 0.2
_UNSEEN_S = 30.0
"""After this long marks may have come and gone between two looks."""


@dataclass(frozen=True, slots=True)
class Plan:
    ledgers: int
    """That name the bookie which is killed."""
    entries: int
    """Of each ledger."""
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was seen."""

    ledgers: int
    nbytes: int
    """Payload that the bookie held."""
    seconds: float
    """From the kill to the moment when no metadata named it, detection and grace included."""
    noticing_s: float
    """Of these, until the first ledger was marked: the session, the grace, the audit."""
    disk_bytes_per_s: float
    slowest_append_s: float
    problems: tuple[str, ...]

    @property
    def ledgers_a_minute(self) -> float:
        return 60 * self.ledgers / self.seconds

    @property
    def allowed_s(self) -> float:
        return max(self.nbytes / (SHARE_OF_DISK * self.disk_bytes_per_s), 60 * self.ledgers / LEDGERS_A_MINUTE)


def run(plan: Plan, directory: Path, say: Callable[[str], None]) -> Outcome:
    config = replace(DEFAULT_BOOKIE_CONFIG, session_timeout_s=SESSION_S)
    with LocalCluster(bookies=BOOKIES, data_dir=directory, bookie_config=config) as cluster:
        for _ in range(RECOVERIES):
            cluster.start_autorecovery(AutoRecoveryConfig(lost_bookie_grace_s=GRACE_S))
        with BookKeeper(cluster.metadata_uri) as client:
            return _Run(cluster, client, plan, say).play()


class _Run:
    def __init__(self, cluster: LocalCluster, client: BookKeeper, plan: Plan, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._client = client
        self._plan = plan
        self._say = say
        self._lost = cluster.bookies[-1]

    def play(self) -> Outcome:
        disk = disk_bytes_per_s(self._cluster.data_dir)
        self._say(f"disk: {disk / 1e6:.0f} MB/s written and synced")
        written = self._fill()
        with SteadyLoad(self._cluster.metadata_uri, writers=1, readers=1) as load:
            load.noted.confirmed.update(written)
            load.await_progress()
            held = self._naming()
            nbytes = sum(lost_bytes(one, self._lost.bookie_id) for one in held)
            self._say(f"bookie {self._lost.bookie_id} is killed: {len(held)} ledgers, {nbytes / 1e6:.1f} MB")
            begun_s = time.monotonic()
            self._lost.kill()
            noticing_s, seconds = self._await_whole(begun_s)
            load.await_progress()
        problems = [*load.noted.errors, *self._verify(load.noted.confirmed)]
        slowest_s = load.noted.slowest_s
        return Outcome(len(held), nbytes, seconds, noticing_s, disk, slowest_s, tuple(problems))

    def _fill(self) -> dict[int, int]:
        """Closed ledgers, until enough of them name the bookie; gives back their last entries."""
        written: dict[int, int] = {}

        def fill(_: int) -> bool:
            with self._client.create_ledger() as writer:
                payloads = [payload(writer.ledger_id, entry_id) for entry_id in range(self._plan.entries)]
                writer.append_batch(pa.array(payloads, pa.binary()))
            written[writer.ledger_id] = self._plan.entries - 1
            return self._lost.bookie_id in writer.metadata.last_fragment.ensemble

        naming = 0
        with ThreadPoolExecutor(THREADS) as pool:
            while naming < self._plan.ledgers:
                naming += sum(pool.map(fill, range(min(1_000, self._plan.ledgers - naming))))
                self._say(f"{len(written)} ledgers are written, {naming} of them on the bookie")
        return written

    def _naming(self) -> list[LedgerMetadata]:
        listed = list(self._client.list_ledgers())
        pages = [listed[start : start + 1_000] for start in range(0, len(listed), 1_000)]
        return [one for page in pages for one in self._client.existing_ledgers(page) if self._lost.bookie_id in one.bookies]

    def _await_whole(self, begun_s: float) -> tuple[float, float]:
        """Until no metadata names the bookie: marks first, which cost little to count, then all metadata."""
        marks = UnderReplication(self._client.metadata_store, self._client.znodes)
        noticed_s: float | None = None
        while True:
            passed_s = time.monotonic() - begun_s
            if passed_s > self._plan.deadline_s:
                raise AssertionError(f"{len(self._naming())} ledgers still name the bookie after {passed_s:.0f} s")
            marked = marks.count()
            noticed_s = passed_s if noticed_s is None and marked else noticed_s
            if (noticed_s is not None or passed_s > _UNSEEN_S) and marked == 0 and not self._naming():
                return noticed_s or passed_s, time.monotonic() - begun_s
            time.sleep(_LOOK_S)

    def _verify(self, confirmed: dict[int, int]) -> list[str]:
        """Every replica that metadata names has all that it should, and every entry is what was written."""
        check = LedgerCheck(self._client.context, AutoRecoveryConfig(ledger_check_bytes_per_s=1 << 40))

        def problem_of(ledger_id: int) -> str | None:
            report = self._client.context.submit(check.check(ledger_id)).result()
            if report.lacking or report.unknown:
                return f"ledger {ledger_id}: lacking {dict(report.lacking)}, unknown {dict(report.unknown)}"
            return is_unreadable(self._client, ledger_id, confirmed[ledger_id])

        with ThreadPoolExecutor(THREADS) as pool:
            return [found for found in pool.map(problem_of, sorted(confirmed)) if found]


def disk_bytes_per_s(directory: Path) -> float:
    """Bytes written in blocks of a megabyte and synced, a second."""
    block, path, begun_s = os.urandom(MIB), directory / "disk-probe", time.monotonic()
    with path.open("wb", buffering=0) as file:
        for _ in range(DISK_PROBE_BYTES // MIB):
            file.write(block)
        os.fdatasync(file.fileno())
    path.unlink()
    return DISK_PROBE_BYTES / (time.monotonic() - begun_s)


def describe(outcome: Outcome) -> str:
    """What is printed at the end."""
    lines = [
        f"whole again after {outcome.seconds:.1f} s ({outcome.noticing_s:.1f} s to notice), {outcome.allowed_s:.1f} s allowed",
        f"{outcome.ledgers_a_minute:,.0f} ledgers a minute, {outcome.nbytes / outcome.seconds / 1e6:.1f} MB/s of payload, "
        f"{outcome.nbytes / outcome.seconds / outcome.disk_bytes_per_s:.0%} of the disk's rate",
        f"the slowest append of a writer took {outcome.slowest_append_s:.2f} s",
        *(f"VIOLATED {problem}" for problem in outcome.problems[:20]),
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.chaos.lost_bookie", description=__doc__)
    parser.add_argument("--ledgers", type=int, default=10_000, help="ledgers on the lost bookie (default %(default)s)")
    parser.add_argument("--entries", type=int, default=20, help=f"of {ENTRY_BYTES} bytes in each (default %(default)s)")
    parser.add_argument("--deadline-s", type=float, default=1_800, help="then it has failed (default %(default)s)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        plan = Plan(args.ledgers, args.entries, args.deadline_s)
        outcome = run(plan, Path(directory) / "cluster", lambda line: print(line, flush=True))
    print(describe(outcome))
    return 1 if outcome.problems or outcome.seconds > outcome.allowed_s else 0


if __name__ == "__main__":
    sys.exit(main())
