"""``python -m tests.soak.chaos --rounds 200``: the chaos test, with a report. Exits with 1 if anything was violated."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.soak.chaos.checker import Verdict
from tests.soak.chaos.plan import draw
from tests.soak.chaos.rounds import Arena, Outcome, run_round

BOOKIES = 5

MIXED = 4, 2
"""Bookies of a mixed cluster, and how many of them are Apache's."""

ROUNDS_OF_A_CLUSTER = 50
"""Then a new one: bookies of this version never give back space."""

MAX_LINES = 10
"""Violations that are printed of a round; what was recorded has them all."""


def play(directory: Path, rounds: int, first_seed: int, *, mixed: bool = False, java: bool = False) -> Iterator[Outcome]:
    """The rounds of consecutive seeds; what they recorded is below ``directory``."""
    bookies, apache = MIXED if mixed else (BOOKIES, 0)
    for start in range(first_seed, first_seed + rounds, ROUNDS_OF_A_CLUSTER):
        place = directory / f"cluster-of-{start}"
        place.mkdir(parents=True)
        with Arena(place, bookies, apache, java=java) as arena:
            for seed in range(start, min(start + ROUNDS_OF_A_CLUSTER, first_seed + rounds)):
                yield run_round(arena, draw(seed, bookies, java=java))
        if not any(place.glob("round-*")):
            shutil.rmtree(place)


def describe(outcome: Outcome) -> str:
    """One line; for a failed round also what it violated and where to look."""
    lines = [line_of(outcome)]
    if outcome.verdict.violations:
        lines.append(f"  again with the same command and ROUNDS=1 FIRST={outcome.plan.seed} KEEP=records")
        lines.append(f"  history: {outcome.directory}/*.jsonl, logs: {outcome.directory.parent}/cluster/*/log, ../*.log")
    return "\n".join(lines)


def line_of(outcome: Outcome) -> str:
    """What was done and confirmed, and below it what was violated."""
    plan, verdict = outcome.plan, outcome.verdict
    shape = "/".join(str(size) for size in plan.load.shape)
    what = f"{shape} {plan.end}, {verdict.confirmed} confirmed, {', '.join(outcome.faults) or 'no faults'}"
    cast = f", Java: {' and '.join(plan.java_roles)}" if plan.java_roles else ""
    lines = [f"round {plan.seed}: {outcome.seconds:.1f} s, {what}{cast}"]
    lines += [f"  VIOLATED {violation}" for violation in verdict.violations[:MAX_LINES]]
    return "\n".join(lines)


def summary(outcomes: list[Outcome]) -> str:
    """What was run, and what came of it."""
    verdicts = [outcome.verdict for outcome in outcomes]
    faults = Counter(fault for outcome in outcomes for fault in outcome.faults)
    ends = Counter(outcome.plan.end for outcome in outcomes)
    casts = Counter("+".join(outcome.plan.java_roles) for outcome in outcomes if outcome.plan.java_roles)
    seeds = [outcome.plan.seed for outcome in outcomes]
    return "\n".join(
        (
            f"rounds: {len(outcomes)}, seeds {min(seeds)} to {max(seeds)}, {sum(one.seconds for one in outcomes):.0f} s",
            "faults: " + ", ".join(f"{kind} {count}" for kind, count in sorted(faults.items())),
            "writers: " + ", ".join(f"{kind} {count}" for kind, count in sorted(ends.items())),
            *(["Java's roles: " + ", ".join(f"{roles} {count}" for roles, count in sorted(casts.items()))] if casts else []),
            *sums(verdicts),
            f"steps held against the specification: {sum(one.steps or 0 for one in outcomes)}",
            f"rounds with any violation: {sum(bool(one.violations) for one in verdicts)}",
        )
    )


def sums(verdicts: list[Verdict]) -> list[str]:
    """What was confirmed, and the three numbers that must be 0."""
    return [
        f"entries confirmed: {sum(one.confirmed for one in verdicts)}",
        f"confirmed entries lost: {sum(len(one.lost) for one in verdicts)}",
        f"confirmed entries read differently by two readers: {sum(len(one.divergent) for one in verdicts)}",
        f"ledgers whose recovery does not end once enough bookies are back: {sum(one.unended for one in verdicts)}",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, metavar="N", help="default %(default)s")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="seed of the first round (default %(default)s)")
    parser.add_argument("--keep", metavar="D", help="keep all that was recorded in this new directory")
    parser.add_argument("--mixed", action="store_true", help="two of our bookies and two of Apache's, in one cluster")
    parser.add_argument("--java", action="store_true", help="Apache's Java client plays some of the roles in each round")
    args = parser.parse_args()
    directory = Path(args.keep) if args.keep else Path(tempfile.mkdtemp(prefix="bk_spark-chaos-"))
    outcomes: list[Outcome] = []
    try:
        for outcome in play(directory, args.rounds, args.first, mixed=args.mixed, java=args.java):
            print(describe(outcome), flush=True)
            outcomes.append(outcome)
            if not args.keep and not outcome.verdict.violations:
                shutil.rmtree(outcome.directory)
    finally:
        if outcomes:
            print(summary(outcomes))
    is_clean = not any(outcome.verdict.violations for outcome in outcomes)
    if is_clean and not args.keep:
        shutil.rmtree(directory)
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
