"""Users of directories as processes, and all processes that run because of them."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.checkout import ROOT
from tests.soak.directories.model import Directory

ANSWER_S = 240.0
"""For any answer of a user: a start takes two minutes at most, and then says why."""


class Finding(Exception):
    """Something is not as it has to be."""


class User:
    """A process that uses a directory. It lives in the world's folder, by which it and its children are found."""

    def __init__(self, kind: str, path: Path, directory: Directory, world: Path, code: Path) -> None:
        self.kind = kind
        self.directory = directory
        command = [sys.executable, "-m", "tests.soak.directories.user", kind, str(path)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(code), str(ROOT)])}
        with (world / "users.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=world, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def answer(self) -> dict[str, Any]:
        """Raises Finding if there is none in time. A user that ended without a word says so."""
        try:
            line = self._answers.get(timeout=ANSWER_S)
        except queue.Empty:
            raise Finding(f"a user of {self.directory.path} has not answered for {ANSWER_S:g} s") from None
        answer: dict[str, Any] = json.loads(line) if line else {"error": f"ended with {self.process.wait()}"}
        return answer

    def ask(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            raise Finding(f"a user of {self.directory.path} does not end") from None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def living(place: Path) -> list[int]:
    """The processes that work in ``place`` or below it, or name it; not this one."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with suppress(OSError):
                cwd = os.readlink(f"/proc/{name}/cwd").removesuffix(" (deleted)")
                words = Path(f"/proc/{name}/cmdline").read_bytes()
                if words and (Path(cwd).is_relative_to(place) or f"{place}/".encode() in words):
                    found.append(int(name))
    return found


def working_in(inode: tuple[int, int]) -> list[int]:
    """The processes whose working directory has this device and inode number, whatever its name is."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                status = os.stat(f"/proc/{name}/cwd")
                if (status.st_dev, status.st_ino) == inode:
                    found.append(int(name))
    return found


def kill_all(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def await_that(what: str, condition: Callable[[], bool], seconds: float = 90.0) -> None:
    """Raises Finding."""
    deadline_s = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline_s:
            raise Finding(f"it does not become true within {seconds:g} s that {what}")
        time.sleep(0.1)
