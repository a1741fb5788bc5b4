"""``python -m tests.durations``: the last run of the tests, longest first (``--tests``: single tests, not files)."""

from __future__ import annotations

import argparse
import json

from tests.durations.recorded import RECORDED, record
from tests.durations.recorder import LATEST

MOST = 40


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.durations", description=__doc__)
    parser.add_argument("--tests", action="store_true", help="single tests")
    parser.add_argument("--record", action="store_true", help="keep what the files took, for the order of later runs")
    given = parser.parse_args()
    if not LATEST.exists():
        print(f"{LATEST} is not there: run make test first")
        return 1
    run = json.loads(LATEST.read_text())
    if given.record:
        print(f"{record(run)} files recorded in {RECORDED}")
        return 0
    starts = ", ".join(f"{count} {kind}" for kind, count in run["starts"].items())
    print(f"{run['seconds']:.0f} s, {run['cpu_s']:.0f} s of CPU in tests; started: {starts}")
    for worker, spent in run["workers"].items():
        print(f"{worker}: {', '.join(f'{name} {value:.0f}' for name, value in spent.items())}")
    for name, (seconds, count) in list(run["fixtures"].items())[:MOST]:
        print(f"{seconds:8.1f} s  fixture {name}, {count} times")
    steps = ("setup", "call", "teardown")
    tests = {test: (sum(took.get(step, 0.0) for step in steps), took["cpu_s"]) for test, took in run["tests"].items()}
    for name, (seconds, cpu_s) in list((tests if given.tests else run["files"]).items())[:MOST]:
        print(f"{seconds:8.1f} s, {cpu_s:7.1f} s of CPU  {name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
