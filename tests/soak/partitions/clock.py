"""The wall clock of a process of ours, which can jump: ``python -m tests.soak.partitions.clock FILE MODULE ARGUMENTS…``.

The process sees the machine's time plus what the file says. Its monotonic clock, by which histories and traces are put in
order, stays as it is. libfaketime would do the same from outside, but 0.9.10 makes absolute sleeps fail, which are Python's.
"""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path


class Clock:
    """``file`` is a new one."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.show(0.0)

    def command(self, words: list[str]) -> list[str]:
        """The command ``python … -m MODULE ARGUMENTS…``, perhaps behind a prefix, with this clock."""
        at = words.index("-m")
        return [*words[: at + 1], "tests.soak.partitions.clock", str(self._file), *words[at + 1 :]]

    def show(self, ahead_s: float) -> None:
        """From now on it is ahead of the machine's, or behind if this is negative."""
        new = self._file.with_suffix(".new")
        new.write_text(str(ahead_s))
        new.replace(self._file)


def main(file: str, module: str, *arguments: str) -> None:
    sys.argv = [module, *arguments]
    told, ahead = time.time_ns, Path(file)
    time.time_ns = lambda: told() + int(float(ahead.read_text()) * 1e9)
    time.time = lambda: time.time_ns() / 1e9
    runpy.run_module(module, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
