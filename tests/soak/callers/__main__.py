"""``python -m tests.soak.callers --histories 500 --seed 1``: callers of two gateways beside lists of rows, in memory.

Prints every difference with its seed, and ends with 1 if there was one. ``--seed N --histories 1`` plays one history again.
``--bug NAME`` plays with a deliberate bug; ``--bugs`` says by which history each is found, and ends with 1 if one is not.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections.abc import Iterable

from tests.soak.callers.bugs import BUGS, planted
from tests.soak.callers.history import DifferenceError, History

HISTORIES_FOR_A_BUG = 60


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.callers", description=__doc__)
    parser.add_argument("--histories", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1, help="of the first history; the next ones follow")
    parser.add_argument("--bug", default="", choices=["", *BUGS])
    parser.add_argument("--bugs", action="store_true")
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # of appends that are dropped
    if given.bugs:
        return _find_bugs(given.seed)
    begun, differences, calls, refused = time.monotonic(), 0, 0, 0
    with planted(given.bug):
        for seed in range(given.seed, given.seed + given.histories):
            history = History(seed)
            try:
                history.run()
            except Exception:
                differences += 1
                print(f"seed {seed}:\n{traceback.format_exc(limit=-6)}", flush=True)
            calls, refused = calls + history.calls, refused + history.refused
    spent_s = time.monotonic() - begun
    print(
        f"{given.histories} histories, {calls} answers compared, {refused} of them refusals, {differences} differences, "
        f"{spent_s:.0f} s"
    )
    return 1 if differences else 0


def _find_bugs(first: int) -> int:
    missed = 0
    for bug in BUGS:
        with planted(bug):
            found = found_by(range(first, first + HISTORIES_FOR_A_BUG))
        print(f"{bug}: {'NOT FOUND' if found is None else f'found by history {found}'}", flush=True)
        missed += found is None
    return 1 if missed else 0


def found_by(seeds: Iterable[int]) -> int | None:
    """The first history that finds a difference."""
    for seed in seeds:
        try:
            History(seed).run()
        except DifferenceError:
            return seed
    return None


if __name__ == "__main__":
    sys.exit(main())
