"""Finds, kills and starts again the processes of a run. All of them carry a mark in their environment, which children inherit.

Spark's processes are children of children, and leave each other's process groups: the mark is what they have in common, also
when their parents are dead. It is read from /proc, so this runs on Linux alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from bk_spark.local.process import Keeper

MARK = "BK_SPARK_STREAM_RUN"

SETTLE_S = 20.0
"""Processes that lost their parent end by themselves: a Python worker looks at its socket after its task."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A living process of the run."""

    pid: int
    parent: int
    command: str


def living(mark: str) -> list[Seen]:
    """All processes that carry the mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile, or is another user's
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(_seen(entry))
    return found


def kill_all(victims: Iterable[Seen]) -> None:
    for one in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)


def await_end(mark: str, needed: Sequence[str]) -> list[Seen]:
    """Those that live although nobody needs them any more, after some time to notice. ``needed``: parts of command lines."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        left = [one for one in living(mark) if not any(part in one.command for part in needed)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def _seen(entry: Path) -> Seen:
    # The name, in parentheses, may hold anything; the parent is the second field behind it.
    behind_name = (entry / "stat").read_text().rpartition(")")[2].split()
    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return Seen(int(entry.name), int(behind_name[1]), command)


class Supervised:
    """A child that is started again when it ends, until it ends well after it was told to.

    It is in the keeper's process group, which does not outlive this process, whatever ends it.
    """

    def __init__(self, keeper: Keeper, name: str, command: Sequence[str], log: Path, mark: str) -> None:
        self.name = name
        self.log = log
        self._keeper = keeper
        self.starts = 0
        self.unexplained: list[str] = []
        """Ends that no kill explains."""
        self._command = command
        self._mark = mark
        self._finishing = False
        self._may_fall = False
        self._start()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def is_done(self) -> bool:
        return self._finishing and self._child.poll() == 0

    def expect_fall(self) -> None:
        """A kill that was just done explains an end of this process, until it has been started again."""
        self._may_fall = True

    def expect_life(self) -> None:
        """The kill has had its effect: from now on nothing explains an end."""
        self._may_fall = False

    def finish(self) -> None:
        """From now on an exit with status 0 is the end."""
        self._finishing = True

    def ask_to_end(self) -> None:
        """As ``finish``, with SIGTERM."""
        self.finish()
        self._child.terminate()

    def tick(self) -> None:
        """Start it again if it has ended."""
        status = self._child.poll()
        if status is None or self.is_done:
            return
        if not self._may_fall:
            self.unexplained.append(f"{self.name} ended with status {status}, and nothing of it was killed: see {self.log}")
        self._start()

    def close(self) -> None:
        self._child.kill()
        self._child.wait()

    def _start(self) -> None:
        self.starts += 1
        self._may_fall = False
        with self.log.open("ab") as output, mock.patch.dict(os.environ, {MARK: self._mark, "PYSPARK_PYTHON": sys.executable}):
            output.write(f"--- start {self.starts}\n".encode())
            output.flush()
            self._child = self._keeper.spawn(self._command, output, {})
