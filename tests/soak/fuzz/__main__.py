"""``python -m tests.soak.fuzz --seconds 600 --seed 1 [--target NAME]``: every target, or those whose names contain NAME.

Each runs in a process of its own, which has the value that it tries in a file: one that crashes, hangs or is killed shows it.
Prints a line for each target, and every finding with its bytes; ends with 1 if there was one.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.soak.fuzz import every_target
from tests.soak.fuzz.engine import fuzz

PATIENCE_S = 60.0
"""Beyond its time: a value that takes longer hangs."""

LEAST_S = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="for all targets together")
    parser.add_argument("--seed", type=int, default=1, help="the same seed tries the same values")
    parser.add_argument("--target", default="", help="part of a target's name")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.alone:
        return _alone(given.alone, given.seed, given.seconds, given.record)
    names = [name for name in every_target() if given.target in name]
    if not names:
        parser.error(f"no target is named so; there are {', '.join(every_target())}")
    each_s = max(LEAST_S, given.seconds / len(names))
    return 1 if sum([_in_process(name, given.seed, each_s) for name in names]) else 0


def _alone(name: str, seed: int, seconds: float, record: Path) -> int:
    logging.disable(logging.CRITICAL)
    report = fuzz(every_target()[name], seed, seconds=seconds, record=record)
    print(report)
    for finding in report.findings[:20]:
        print(finding)
    return 1 if report.findings else 0


def _in_process(name: str, seed: int, seconds: float) -> bool:
    """Whether something was found."""
    with tempfile.TemporaryDirectory() as directory:
        record = Path(directory) / "value"
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.soak.fuzz", "--alone", name, "--record", str(record)]
        command += ["--seed", str(seed), "--seconds", str(seconds)]
        try:
            code = subprocess.run(command, timeout=seconds + PATIENCE_S).returncode
        except subprocess.TimeoutExpired:
            code = -1
        if code not in (0, 1):
            problem = "hangs" if code == -1 else f"ended with {code}"
            value = record.read_bytes() if record.exists() else b""
            print(f"{name} {problem} at these {len(value)} bytes: {value[:2000]!r}", flush=True)
    return code != 0


if __name__ == "__main__":
    sys.exit(main())
