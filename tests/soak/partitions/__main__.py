"""``python -m tests.soak.partitions --rounds 100``: a cluster whose network is cut, with a report. Exits with 1 if anything was
violated. It needs root, for network namespaces and TUN devices."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.soak.chaos.__main__ import line_of, sums
from tests.soak.partitions.fabric import problem
from tests.soak.partitions.plan import BOOKIES, draw
from tests.soak.partitions.rounds import Arena, PartitionOutcome, run_round
from tests.soak.partitions.spoilt import BUGS

ROUNDS_OF_A_CLUSTER = 25


def play(directory: Path, rounds: int, first_seed: int, bug: str | None = None, apache: int = 0) -> Iterator[PartitionOutcome]:
    """The rounds of consecutive seeds; what they recorded is below ``directory``."""
    for start in range(first_seed, first_seed + rounds, ROUNDS_OF_A_CLUSTER):
        place = directory / f"cluster-of-{start}"
        place.mkdir(parents=True)
        with Arena(place, start, bug, apache) as arena:
            for seed in range(start, min(start + ROUNDS_OF_A_CLUSTER, first_seed + rounds)):
                yield run_round(arena, draw(seed))
        if not any(place.glob("round-*")):
            shutil.rmtree(place)


def shown(outcome: PartitionOutcome) -> str:
    """A line for the round, and what became of each ledger and of the log."""
    lines = [f"round {outcome.plan.seed}: {outcome.seconds:.1f} s, {_listed(Counter(outcome.faults))}"]
    lines += [f"  ledger of {line_of(one)}" for one in outcome.lives]
    lines += [f"  log: {outcome.log}", *([f"  Spark: {outcome.streamed}"] if outcome.streamed else [])]
    if outcome.violations:
        lines.append(f"  again with the same command and ROUNDS=1 FIRST={outcome.plan.seed} KEEP=records")
        lines.append(f"  history: {outcome.directory}/*/*.jsonl, logs: {outcome.directory.parent}/*/log, ../*.log")
    return "\n".join(lines)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def summary(outcomes: list[PartitionOutcome]) -> str:
    verdicts = [life.verdict for outcome in outcomes for life in outcome.lives]
    logs = [outcome.log for outcome in outcomes]
    streamed = [outcome.streamed for outcome in outcomes if outcome.streamed]
    faults = Counter(fault for outcome in outcomes for fault in outcome.faults)
    packets = sum((outcome.packets for outcome in outcomes), Counter[str]())
    return "\n".join(
        (
            f"rounds: {len(outcomes)}, {sum(one.seconds for one in outcomes):.0f} s",
            f"faults: {_listed(faults)}",
            f"packets: {_listed(packets)}",
            *sums(verdicts),
            f"steps held against the specification: {sum(life.steps or 0 for outcome in outcomes for life in outcome.lives)}",
            f"log entries confirmed: {sum(one.confirmed for one in logs)}, leaderships {sum(one.leaderships for one in logs)}",
            f"rows that Spark streamed: {sum(one.rows for one in streamed)}, in {len(streamed)} rounds with "
            f"{sum(one.starts for one in streamed)} drivers",
            f"rounds with any violation: {sum(bool(outcome.violations) for outcome in outcomes)}",
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.partitions", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, metavar="N", help="default %(default)s")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="seed of the first round (default %(default)s)")
    parser.add_argument("--keep", metavar="D", help="keep all that was recorded in this new directory")
    parser.add_argument("--bug", choices=BUGS, metavar="B", help=f"with a deliberate bug: {'; '.join(BUGS)}")
    parser.add_argument(
        "--apache", type=int, default=0, metavar="N", help=f"so many of the {len(BOOKIES)} bookies are Apache's"
    )
    args = parser.parse_args()
    if problem():
        parser.error(problem())
    directory = Path(args.keep) if args.keep else Path(tempfile.mkdtemp(prefix="bk_spark-partitions-"))
    outcomes: list[PartitionOutcome] = []
    try:
        for outcome in play(directory, args.rounds, args.first, args.bug, args.apache):
            print(shown(outcome), flush=True)
            outcomes.append(outcome)
            if not args.keep and not outcome.violations:
                shutil.rmtree(outcome.directory)
    finally:
        if outcomes:
            print(summary(outcomes))
    is_clean = not any(outcome.violations for outcome in outcomes)
    if is_clean and not args.keep:
        shutil.rmtree(directory)
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
