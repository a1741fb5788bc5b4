"""Runs commands: mostly forks of one process that has imported everything, which start in a hundredth of the time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.soak.commands.cases import Case, Ended

MAX_S = 90.0
"""After which a command hangs: the longest end in three seconds, and a client waits 30 s for an add."""
_TICK_S = 0.005


@dataclass(slots=True)
class _Copy:
    pid: int
    out: Path
    err: Path
    began_s: float
    code: int | None = None
    was_told: bool = False
    process: subprocess.Popen[bytes] | None = None


class Programs:
    """Starts commands against one cluster. ``bug`` names a deliberate fault of bugs.py, which all of its forks have."""

    def __init__(self, uri: str, folder: Path, bug: str | None = None) -> None:
        self._uri = uri
        self._folder = folder
        words = [sys.executable, "-m", "tests.soak.commands.forks", *([bug] if bug else [])]
        self._forks = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
        )
        self._number = 0

    def run(self, case: Case) -> tuple[Ended, ...]:
        copies = [self._start(case) for _ in range(case.copies)]
        self._disturb(case, copies[0])
        for copy in copies:
            self._wait(copy, copy.began_s + MAX_S)
        return tuple(self._ended(copy) for copy in copies)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._forks.stdin is not None
        self._forks.stdin.close()
        self._forks.wait(10)

    def _start(self, case: Case) -> _Copy:
        self._number += 1
        out, err = self._folder / f"{self._number}.out", self._folder / f"{self._number}.err"
        words = [*case.words, "--metadata", self._uri]
        if case.is_executable:
            with out.open("wb") as stdout, err.open("wb") as stderr:
                executable = str(Path(sys.executable).with_name("bk-spark"))
                process = subprocess.Popen(
                    [executable, *words], stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, cwd=self._folder
                )
            return _Copy(process.pid, out, err, time.monotonic(), process=process)
        pid = self._ask({"words": words, "out": str(out), "err": str(err), "folder": str(self._folder), "stdout": case.stdout})
        return _Copy(pid, out, err, time.monotonic())

    def _disturb(self, case: Case, copy: _Copy) -> None:
        if case.signal is None:
            return
        self._wait(copy, copy.began_s + case.after_s)
        if copy.code is None:
            copy.was_told = True
            os.kill(copy.pid, case.signal)

    def _wait(self, copy: _Copy, deadline_s: float) -> None:
        """Until the copy has ended, or the deadline; at the last deadline it is killed."""
        tick = threading.Event()
        while copy.code is None and time.monotonic() < deadline_s:
            copy.code = copy.process.poll() if copy.process is not None else self._ask({"ended": copy.pid})
            if copy.code is None:
                tick.wait(_TICK_S)
        if copy.code is None and deadline_s >= copy.began_s + MAX_S:
            os.kill(copy.pid, 9)
            copy.err.write_text(f"Aborted: it did not end in {MAX_S:g} s\n{copy.err.read_text()}")
            self._wait(replace(copy, began_s=copy.began_s + MAX_S), time.monotonic() + 5)
            copy.code = -9

    def _ended(self, copy: _Copy) -> Ended:
        assert copy.code is not None
        out, err = (path.read_text(errors="replace") for path in (copy.out, copy.err))
        copy.out.unlink()
        copy.err.unlink()
        return Ended(copy.code, out, err, time.monotonic() - copy.began_s, copy.was_told)

    def _ask(self, question: dict[str, Any]) -> Any:
        assert self._forks.stdin is not None
        assert self._forks.stdout is not None
        self._forks.stdin.write(json.dumps(question) + "\n")
        self._forks.stdin.flush()
        return json.loads(self._forks.stdout.readline())
