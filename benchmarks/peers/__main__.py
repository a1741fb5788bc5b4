from __future__ import annotations

import sys

from benchmarks.speed.command import run

if __name__ == "__main__":
    sys.exit(run("benchmarks.peers"))
