"""How many schedules a second does the simulator play on one core?

Beside the rate, which depends on the machine and on what else it does, its ratio to a calibration loop of plain Python that
runs before and after: a change of the ratio is a change of the code. 150 schedules a second are the aim.

    python benchmarks/simulation_rate.py [--small]
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.simulation.engines.campaign import report, run_seeds

CALIBRATION_STEPS = 1_000_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="20 schedules")
    arguments = parser.parse_args()
    count = 20 if arguments.small else 1_000
    print(f"Python {platform.python_version()}, {platform.machine()}")
    run_seeds(range(2))  # imports and first calls
    before_s = _calibrate()
    started_s = time.process_time()
    totals = run_seeds(range(count))
    seconds = time.process_time() - started_s
    million_s = statistics.mean((before_s, _calibrate()))
    print(report(totals, seconds))
    played = totals.schedules + totals.reruns
    rate = played / seconds
    print(f"{rate:.0f} schedules/s of one core's time, {rate * million_s:.2f} in the time of the calibration loop")
    return 1 if totals.failed_seeds else 0


def _calibrate() -> float:
    """Seconds of CPU time for a loop that does nothing but count in a dictionary."""
    started_s = time.process_time()
    counts: dict[int, int] = {}
    for number in range(CALIBRATION_STEPS):
        counts[number & 255] = counts.get(number & 255, 0) + 1
    return time.process_time() - started_s


if __name__ == "__main__":
    sys.exit(main())
