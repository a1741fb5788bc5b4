"""The wall clock of a process of cut networks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.checkout import ROOT
from tests.soak.partitions.clock import Clock

PROGRAM = """\
import runpy, sys, time
from pathlib import Path
from tests.soak.partitions import clock
from bk_spark.bookie.pace import SYSTEM_CLOCKS
file, began, told = Path(sys.argv[1]), time.monotonic(), time.time()
runpy.run_module = lambda *arguments, **named: None
clock.main(str(file), "no_module")
file.write_text("-3600")
print(round(time.time() - told), round(SYSTEM_CLOCKS.wall_ms() / 1000 - told), round(time.monotonic() - began))
"""


def test_a_wall_clock_jumps_for_all_who_ask_and_the_monotonic_clock_does_not(tmp_path: Path) -> None:
    file = tmp_path / "clock"
    Clock(file)
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(file)], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["-3600", "-3600", "0"]
