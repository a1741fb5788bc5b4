"""The other end of agent.py, and of its Java counterpart: client processes that are given tasks, suspended and killed."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.checkout import ROOT

START_S = 60.0


class Task:
    """A task under way. ``ended`` is set with its answer; ``died`` says that its process was killed instead."""

    def __init__(self, agent: AgentProcess, call: int, who: str) -> None:
        self.who = who
        self.ended = threading.Event()
        self.began = threading.Event()
        self.ledger_id = -1
        self.problem: str | None = None
        self._agent = agent
        self._call = call

    def stop(self) -> None:
        self._agent.send({"stop": self._call})

    def kill(self) -> None:
        """End the process and with it all of its tasks."""
        self._agent.kill()

    def take(self, answer: dict[str, Any]) -> None:
        if "ledger_id" in answer:
            self.ledger_id = answer["ledger_id"]
            self.began.set()
            return
        self.problem = answer["problem"]
        self.end()

    def end(self) -> None:
        self.began.set()
        self.ended.set()

    def await_end(self, deadline_s: float) -> bool:
        """Whether it ended before ``time.monotonic()`` reached the deadline. Raises what the task raised."""
        in_time = self.ended.wait(max(0.0, deadline_s - time.monotonic()))
        if self.problem is not None:
            raise RuntimeError(f"{self.who}: {self.problem}")
        return in_time


def python_agent(metadata_uri: str) -> list[str]:
    """The command of agent.py."""
    return [sys.executable, "-P", "-m", "tests.soak.chaos.agent", metadata_uri]


class AgentProcess:
    """One client process. It ends with ``close``, ``kill``, or this process."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                process_group=0,
                text=True,
            )
        self._calls = itertools.count()
        self._tasks: dict[int, Task] = {}
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def start(self, task: str, file: Path, who: str, **facts: Any) -> Task:
        """Begin a task that records to ``file`` under the name ``who``."""
        call = next(self._calls)
        started = self._tasks[call] = Task(self, call, who)
        self.send({"call": call, "task": task, "file": str(file), "who": who, **facts})
        return started

    def send(self, command: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def suspend(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def close(self) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            self._tasks[answer["call"]].take(answer)
        for task in self._tasks.values():
            task.end()
