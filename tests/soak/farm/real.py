"""The engines with real processes: each is a command of its own that plays rounds of new seeds, one command after the other."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.checkout import ROOT
from tests.soak.partitions.fabric import problem

COMMANDS = {
    "chaos": ("tests.soak.chaos", "--rounds", "10", "--first", "{seed}"),
    "partitions": ("tests.soak.partitions", "--rounds", "5", "--first", "{seed}"),
    "streams": ("tests.soak.streams", "--kills", "10", "--seed", "{seed}"),
    "fuzz": ("tests.soak.fuzz", "--seconds", "60", "--seed", "{seed}"),
}
"""A few minutes each."""

LONGEST_S = 1800
"""For one of them: what hangs is a failure."""

_LINES = re.compile(r"^(rounds: .*|.*confirmed.*|.*lost.*|.*violation.*|faults: .*|\d+ .*)$")
"""What the page shows of an output: its sums."""


@dataclass(slots=True)
class Runs:
    """What the commands of one engine did."""

    runs: int = 0
    seconds: float = 0.0
    failed: list[str] = field(default_factory=list)
    """The files with the outputs of those that failed."""
    last: str = ""
    """The sums of the last one."""


class RealProcesses:
    """Plays them in turn, in a thread, until ``end``. ``directory`` gets the outputs."""

    def __init__(self, directory: Path, first_seed: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.left_out = {"partitions": problem()} if problem() else {}
        """What cannot be played here, and why."""
        self.runs = {name: Runs() for name in COMMANDS if name not in self.left_out}
        self._directory = directory
        self._seed = first_seed
        self._ending = threading.Event()
        self._is_cut_off = False
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()

    def end(self, wait_s: float) -> None:
        """No further command begins; the one under way has so long to end, and is not counted otherwise."""
        self._ending.set()
        self._thread.join(wait_s)
        if self._process is not None and self._process.poll() is None:
            self._is_cut_off = True
            self._process.terminate()
            self._thread.join()

    def _play(self) -> None:
        for number, name in enumerate(itertools.cycle(self.runs)):
            if self._ending.is_set():
                return
            try:
                self._play_one(name, self._seed + 1000 * number)
            except OSError as problem:
                self.runs[name].failed.append(str(problem))
                return

    def _play_one(self, name: str, seed: int) -> None:
        module, *words = (word.format(seed=seed) for word in COMMANDS[name])
        file, begun_s = self._directory / f"{name}-{seed}.txt", time.monotonic()
        with file.open("wb") as output:
            command = [sys.executable, "-m", module, *words]
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
            try:
                code = self._process.wait(LONGEST_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                code = self._process.wait()
        if self._is_cut_off:
            return  # with the farm
        runs = self.runs[name]
        runs.runs += 1
        runs.seconds += time.monotonic() - begun_s
        runs.last = "\n".join(line for line in file.read_text(errors="replace").splitlines()[-14:] if _LINES.match(line))
        if code:
            runs.failed.append(str(file))
